"""Slow peers by their addresses, slow names and slow connects."""

from __future__ import annotations

from collections.abc import Sequence

from ebpfprof.findings import network
from ebpfprof.findings.evidence import Evidence
from ebpfprof.profile.goroutines import DumpedGoroutine
from tests.unit.findings.evidence import (
    HANDLER,
    READ,
    SELECT,
    channel,
    dump,
    evidence,
    for_peer,
    goroutine,
    waits,
)

PEER = "10.0.0.7:5432"
OTHER = "10.0.0.8:6379"
ASK = (*READ, "main.(*conn).exchange:9", *HANDLER)
CALL = (*SELECT, "net/http.(*persistConn).roundTrip", "main.get:5", *HANDLER)
GET_CONNECTION = (*SELECT, "net/http.(*Transport).getConn", "main.get:5", *HANDLER)
LONG, SHORT = 150_000_000, 2_000_000


def asking(peer: str, *ages_ns: int) -> list[DumpedGoroutine]:
    return [
        goroutine(goid, "IO wait", *ASK, waits_for=for_peer(peer), waited_ns=age_ns)
        for goid, age_ns in enumerate(ages_ns, 100 if peer == PEER else 200)
    ]


def asked(*goroutines: DumpedGoroutine, others: float = 1.0) -> Evidence:
    return evidence(
        waits("IO wait", *ASK, mean=4),
        waits("running", *HANDLER, mean=others),
        dumps=[dump(*goroutines)] * 10,
    )


def test_a_peer_that_answers_late_is_named_with_how_long_it_takes() -> None:
    (finding,) = network.find(asked(*asking(PEER, LONG, LONG, LONG, SHORT)))
    assert finding.kind == "slow_peer"
    assert finding.title == f"Slow peer {PEER}: 80 % of the time of requests."
    assert finding.lines == (
        "main.(*conn).exchange (conn.go:9) waits about 400 ms each time; "
        "4.0 requests wait on average.",
    )


def test_a_peer_for_which_all_wait_but_never_for_long_is_fast() -> None:
    found = asked(*asking(PEER, SHORT, SHORT, SHORT, LONG))
    assert not list(network.find(found))
    assert network.fine(found) == "no slow peer"


def test_of_two_peers_at_one_place_only_the_slow_one_is_named() -> None:
    slow, fast = asking(PEER, LONG, LONG), asking(OTHER, SHORT, SHORT)
    (finding,) = network.find(asked(*slow, *fast))
    assert finding.share
    assert (PEER in finding.title, round(finding.share, 2)) == (True, 0.4)


def test_background_goroutines_may_wait_for_long() -> None:
    polls = (*READ, "main.(*conn).exchange:9", "main.poll:3")
    polling = goroutine(1, "IO wait", *polls, waits_for=for_peer(PEER), waited_ns=LONG)
    found = evidence(
        waits("IO wait", *polls, mean=3),
        waits("IO wait", *ASK, mean=1),
        dumps=[dump(polling, *asking(PEER, SHORT))] * 10,
    )
    assert not list(network.find(found))


def connection(goid: int, parent: int, peer: str, closing: int) -> Sequence[DumpedGoroutine]:
    """The goroutines of a connection of net/http's client."""
    closed = (channel(closing, 0, 0),)
    read, write = "net/http.(*persistConn).readLoop", "net/http.(*persistConn).writeLoop"
    return (
        goroutine(goid, "IO wait", *READ, read, waits_for=for_peer(peer), parent=parent),
        goroutine(goid + 1, "select", *SELECT, write, channels=closed, parent=parent),
    )


def test_a_call_of_http_waits_for_the_peer_of_its_connection() -> None:
    calls = [
        goroutine(one, "select", *CALL, channels=(channel(0xC1, 0, 0),), waited_ns=LONG)
        for one in (1, 2)
    ]
    found = evidence(
        waits("select", *CALL, mean=2),
        dumps=[dump(*calls, *connection(10, 5, PEER, 0xC1), *connection(20, 6, OTHER, 0xC2))] * 10,
    )
    (finding,) = network.find(found)
    assert finding.title.startswith(f"Slow peer {PEER}: ")


def test_a_call_of_grpc_waits_for_the_only_peer_of_grpc() -> None:
    grpc = "google.golang.org/grpc"
    call = (
        *(*SELECT, f"{grpc}/internal/transport.(*ClientStream).waitOnHeader"),
        *(f"{grpc}.(*ClientConn).Invoke", "main.stock:7", *HANDLER),
    )
    reads = (*READ, f"{grpc}/internal/transport.(*http2Client).reader")
    calling = [goroutine(one, "select", *call, waited_ns=LONG) for one in (1, 2)]
    reader = goroutine(9, "IO wait", *reads, waits_for=for_peer(PEER))
    found = evidence(waits("select", *call, mean=2), dumps=[dump(*calling, reader)] * 10)
    (finding,) = network.find(found)
    assert finding.title.startswith(f"Slow peer {PEER}: ")
    assert finding.place
    assert finding.place.function == "main.stock"


def test_name_lookups_of_the_goroutines_that_connect_are_slow_names() -> None:
    lookup = (*SELECT, "net.(*Resolver).lookupIPAddr", "net/http.(*Transport).dialConnFor")
    server = (*READ, "net.(*Resolver).exchange", "net.(*Resolver).goLookupIPCNAMEOrder.func3")
    asks = goroutine(3, "IO wait", *server, waits_for=for_peer("10.0.0.2:53"))
    found = evidence(
        waits("select", *GET_CONNECTION, mean=2),
        waits("select", *lookup, mean=2),
        dumps=[dump(asks)] * 5,
    )
    (finding,) = network.find(found)
    assert (finding.kind, finding.share) == ("slow_dns", 1.0)
    assert "10.0.0.2:53" in finding.lines[0]


def test_connects_and_handshakes_are_named_with_their_peer() -> None:
    connect = (*READ, "net.(*netFD).connect", "net.(*Dialer).DialContext", "main.dial:3", *HANDLER)
    waiting = goroutine(1, "IO wait", *connect, waits_for=for_peer(PEER, is_connecting=True))
    found = evidence(waits("IO wait", *connect, mean=2), dumps=[dump(waiting)] * 5)
    (finding,) = network.find(found)
    assert finding.kind == "slow_connect"
    assert finding.title == f"Slow connects to {PEER}: 100 % of the time of requests."
    shake = (*READ, "crypto/tls.(*Conn).HandshakeContext", "main.dial:3", *HANDLER)
    shaking = goroutine(1, "IO wait", *shake, waits_for=for_peer(PEER))
    (finding,) = network.find(evidence(waits("IO wait", *shake, mean=2), dumps=[dump(shaking)] * 5))
    assert finding.title.startswith(f"TLS handshakes with {PEER}: ")
