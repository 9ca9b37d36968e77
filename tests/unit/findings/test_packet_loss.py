"""Packets that are lost on the way to peers, by what TCP counted for each connection."""

from __future__ import annotations

import pytest

from ebpfprof.findings import network
from ebpfprof.findings.evidence import BeforeAndAfter, Evidence
from ebpfprof.findings.finding import Finding
from ebpfprof.findings.host import HostMoment
from ebpfprof.profile.connections import TcpConnection
from tests.unit.findings.evidence import (
    HANDLER,
    READ,
    dump,
    evidence,
    for_peer,
    goroutine,
    listener,
    waits,
)

PEER, OTHER = "10.0.0.7:5432", "10.0.0.8:5432"
LOCAL = "10.0.0.1:40001"
ASK = (*READ, "main.(*conn).exchange:9", *HANDLER)
LONG = 150_000_000


def sent(
    segments: int, lost: int, *, peer: str = PEER, local: str = LOCAL, needless: int = 0
) -> TcpConnection:
    """A connection: lost segments were sent again, and so were needless ones."""
    return TcpConnection(local, peer, segments, lost + needless, needless)


def observed(
    *after: TcpConnection, before: tuple[TcpConnection, ...] = (), asks: float = 0.0
) -> Evidence:
    """A server on port 8080, with these connections. Some requests wait for PEER."""
    waiting = goroutine(7, "IO wait", *ASK, waits_for=for_peer(PEER), waited_ns=LONG)
    accepting = goroutine(1, "IO wait", *READ, "main.listen", waits_for=listener(":8080"))
    return evidence(
        *([waits("IO wait", *ASK, mean=asks)] if asks else []),
        waits("running", *HANDLER, mean=1),
        dumps=[dump(accepting, *([waiting] if asks else []))] * 10,
        host=BeforeAndAfter(moment(before), moment(after)),
    )


def moment(connections: tuple[TcpConnection, ...]) -> HostMoment:
    return HostMoment(cpu_ns=0, connections=dict(enumerate(connections)))


def found(of: Evidence) -> list[Finding]:
    return list(network.find(of))


def test_a_peer_to_which_packets_are_lost() -> None:
    of = observed(sent(1_900, 75), sent(800, 0, peer=OTHER), before=(sent(400, 5),))
    (finding,) = found(of)
    assert finding.kind == "packet_loss"
    assert finding.title == f"Packet loss: 5 ± 1 % of the packets to {PEER} are lost."
    assert finding.lines == (f"TCP sent 70 of 1,500 segments to {PEER} again.",)
    assert finding.share is None
    assert network.fine(of) == "packet loss 3 %"


def test_requests_that_wait_for_such_a_peer_do_not_make_it_a_slow_one() -> None:
    (finding,) = found(observed(sent(1_000, 50), asks=3))
    assert finding.kind == "packet_loss"
    assert finding.share == 0.75
    assert finding.lines[1] == (
        "main.(*conn).exchange (conn.go:9) waits for its answers: 75 % of the time of requests."
    )
    (finding,) = found(observed(sent(1_000, 50, peer=OTHER), sent(1_000, 0), asks=3))[1:]
    assert finding.title.startswith(f"Slow peer {PEER}")


def test_several_peers_are_one_finding() -> None:
    (finding,) = found(observed(sent(1_000, 50), sent(1_000, 80, peer=OTHER)))
    assert f"of the packets to {OTHER} and 1 other peer are lost." in finding.title


def test_a_network_that_loses_a_little_of_what_is_sent_to_each_peer() -> None:
    targets = [sent(25, 1, peer=f"10.0.2.{number}:9100") for number in range(40)]
    (finding,) = found(observed(*targets))
    assert finding.title == "Packet loss: 4 ± 1 % of the packets to 40 peers are lost."
    assert found(observed(*targets[:9])) == []
    one = [sent(25, 9, peer=OTHER), sent(25, 2), sent(900, 0, peer="10.0.0.9:443")]
    assert found(observed(*one)) == []


def test_clients_are_named_by_the_port_that_they_use() -> None:
    clients = [
        sent(500, lost, local="10.0.0.1:8080", peer=f"10.0.1.{number}:50000")
        for number, lost in enumerate((30, 20, 30, 30, 40))
    ]
    (finding,) = found(observed(*clients))
    assert finding.title == "Packet loss: 6 % of the packets to clients of :8080 are lost."
    assert finding.lines == (
        "TCP sent 150 of 2,500 segments to clients of :8080 again, 40 of them to 10.0.1.4.",
    )


@pytest.mark.parametrize(
    "connection",
    [
        sent(100_000, 99),  # 0.1 %
        sent(300, 9),  # of one moment
        sent(1_000, 0, needless=100),  # these had arrived
        sent(1_000, 60, peer="93.184.215.14:443"),  # on the Internet
        sent(1_000, 60, local="10.0.0.1:8080", peer="93.184.215.14:50000"),
    ],
)
def test_little_is_lost_on_the_way_in_healthy_networks(connection: TcpConnection) -> None:
    assert found(observed(connection)) == []


def test_what_was_lost_before_is_not_counted() -> None:
    assert found(observed(sent(1_500, 90), before=(sent(1_000, 90),))) == []
    # The inode of a connection that was closed.
    (finding,) = found(observed(sent(1_500, 90), before=(sent(1_000, 90, peer=OTHER),)))
    assert "90 of 1,500" in finding.lines[0]


def test_without_counters_nothing_is_said() -> None:
    of = evidence(
        waits("running", *HANDLER, mean=1), host=BeforeAndAfter(*[HostMoment(cpu_ns=0)] * 2)
    )
    assert found(of) == []
    assert network.fine(of) == ""


def test_a_part_of_few_packets_is_less_certain() -> None:
    (finding,) = found(observed(sent(60, 20)))
    assert finding.title == f"Packet loss: 33 ± 6 % of the packets to {PEER} are lost."


def test_a_peer_without_an_ip_address_is_not_on_the_internet() -> None:
    (finding,) = found(observed(sent(1_000, 60, peer="unknown:443")))
    assert "of the packets to unknown:443 are lost" in finding.title
