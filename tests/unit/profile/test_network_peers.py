"""For which peer goroutines wait, by their sockets and the connections of clients."""

from __future__ import annotations

from ebpfprof.profile.goroutines import Channel, DumpedGoroutine, GoroutineDump
from ebpfprof.profile.model import Frame
from ebpfprof.profile.network_peers import GRPC_ANSWER, HTTP_ANSWER, READ_LOOP, NetworkPeers
from ebpfprof.profile.waiting_for import NOTHING, FileWait, OpenFile, WaitsFor

WRITE_LOOP = "net/http.(*persistConn).writeLoop"
GRPC_READER = "google.golang.org/grpc/internal/transport.(*http2Client).reader"
SHOP, BANK = "10.0.0.1:80", "10.0.0.2:80"


def goroutine(
    function: str,
    *,
    peer: str | None = None,
    local: str = "10.0.0.9:5001",
    parent: int = 0,
    channel: int = 0,
    is_listener: bool = False,
) -> DumpedGoroutine:
    waits = NOTHING
    if peer is not None:
        socket = OpenFile(7, "tcp", local, peer, is_listener=is_listener)
        waits = WaitsFor(file_wait=FileWait(socket, is_write=False))
    channels = (Channel(channel, 0, 0, is_closed=False),) if channel else ()
    frames = (Frame("runtime.gopark", "", 0), Frame(function, "", 0))
    return DumpedGoroutine(
        9, "select", frames, True, 0, 0, False, None, parent, (), channels, waits
    )


def peers(*goroutines: DumpedGoroutine) -> NetworkPeers:
    return NetworkPeers(GoroutineDump(1, "x", "go1.27", 0, goroutines, 0, 0, 0, 0))


def connection(peer: str, maker: int, channel: int) -> tuple[DumpedGoroutine, DumpedGoroutine]:
    """The two goroutines of a client's connection."""
    return (
        goroutine(READ_LOOP, peer=peer, parent=maker),
        goroutine(WRITE_LOOP, parent=maker, channel=channel),
    )


def test_an_http_answer_comes_from_the_peer_of_its_connection() -> None:
    found = peers(*connection(SHOP, 3, 0xA0), *connection(BANK, 4, 0xB0))
    assert found.of(goroutine("main.get", channel=0xA0), HTTP_ANSWER) == SHOP
    assert found.of(goroutine("main.get", channel=0xB0), HTTP_ANSWER) == BANK
    assert found.of(goroutine("main.get", channel=0xC0), HTTP_ANSWER) == ""


def test_the_only_peer_is_likely_but_not_sure() -> None:
    found = peers(*connection(SHOP, 3, 0xA0))
    waiting = goroutine("main.get", channel=0xC0)
    assert found.of(waiting, HTTP_ANSWER) == SHOP
    assert found.of(waiting, HTTP_ANSWER, is_sure=True) == ""


def test_the_peer_of_grpc_is_known_if_there_is_one() -> None:
    shop, bank = (goroutine(GRPC_READER, peer=peer) for peer in (SHOP, BANK))
    call = goroutine("main.call")
    assert peers(shop, shop).of(call, GRPC_ANSWER) == SHOP
    assert peers(shop, bank).of(call, GRPC_ANSWER) == ""
    assert peers().of(call, GRPC_ANSWER) == ""


def test_other_waits_are_for_the_peer_of_their_socket() -> None:
    found = peers()
    assert found.of(goroutine("main.read", peer=SHOP), "IO wait") == SHOP
    assert found.of(goroutine("main.read"), "IO wait") == ""


def test_connections_to_a_port_of_the_program_are_those_of_clients() -> None:
    found = peers(goroutine("main.serve", peer="", local="*:80", is_listener=True))
    assert found.is_client(goroutine("main.handle", peer="10.0.0.7:41", local="10.0.0.9:80"))
    assert not found.is_client(goroutine("main.ask", peer=SHOP, local="10.0.0.9:5001"))
    assert not found.is_client(goroutine("main.think"))
