"""Requests on connections, in timelines with known truth."""

from __future__ import annotations

import pytest

from ebpfprof.commands.trace_tables import Asked, TraceTables
from ebpfprof.profile.waiting_for import OpenFile
from ebpfprof.timeline.events import EventKind
from ebpfprof.timeline.model import WaitObject
from ebpfprof.timeline.requests import Request, connection, is_address
from tests.made_up_timeline import Story

SERVE, READER, HOLDER, OTHER = 1, 2, 3, 4
CLIENT, SERVER = "10.0.0.9:4711", "10.0.0.1:8080"
SOCKET = WaitObject("a socket", OpenFile(7, "tcp", SERVER, CLIENT))
BACKEND = WaitObject("another", OpenFile(8, "tcp", "10.0.0.1:3999", "10.0.0.2:5432"))
LISTENER = WaitObject("a listener", OpenFile(3, "tcp", SERVER, is_listener=True))
READ = ("internal/poll.runtime_pollWait", "internal/poll.(*FD).Read", "net.(*conn).Read")
NEXT = (*READ, "net/http.(*connReader).Read", "net/http.(*conn).serve")
BODY = (*READ, "net/http.(*body).Read", "main.handle", "net/http.(*conn).serve")
WRITE = ("internal/poll.runtime_pollWait", "internal/poll.(*FD).Write", "net/http.(*conn).serve")
LOCK = ("sync.(*Mutex).Lock", "main.handle", "net/http.(*conn).serve")
IO, MUTEX = "IO wait", "sync.Mutex.Lock"


def story(*more: int) -> Story:
    names = {
        SERVE: "net/http.(*conn).serve",
        HOLDER: "main.holds",
        OTHER: "main.accepts",
        READER: "net/http.(*connReader).backgroundRead",
    }
    found = Story({goid: name for goid, name in names.items() if goid in (SERVE, HOLDER, *more)})
    found.park(0, SERVE, IO, *NEXT, on=SOCKET)
    return found


def requests(of: Story, end_ns: int, address: str = CLIENT) -> list[tuple[int, int, int, bool]]:
    found = connection(of.timeline(end_ns), address).requests
    return [(each.goid, each.begin_ns, each.end_ns, each.is_whole) for each in found]


@pytest.mark.parametrize("address", [CLIENT, SERVER, ":8080"])
def test_a_request_is_from_the_wake_by_the_network_to_the_next_wait(address: str) -> None:
    events = story()
    for begin_ns, end_ns in ((100, 150), (400, 900)):
        events.network(begin_ns, SERVE)
        events.park(end_ns, SERVE, IO, *NEXT, on=SOCKET)
    assert requests(events, 1000, address) == [(SERVE, 100, 150, True), (SERVE, 400, 900, True)]


@pytest.mark.parametrize("address", [":80", "10.0.0.9:4712", "10.0.0.9:471"])
def test_other_connections_are_not_meant(address: str) -> None:
    events = story()
    events.network(100, SERVE)
    events.park(200, SERVE, IO, *NEXT, on=SOCKET)
    assert requests(events, 300, address) == []


def test_of_a_connection_within_the_program_the_end_is_meant_whose_peer_it_is() -> None:
    events = story(OTHER)
    client = OpenFile(9, "tcp", CLIENT, SERVER)
    events.park(50, OTHER, IO, *READ, "main.accepts", on=WaitObject("its end", client))
    events.network(100, SERVE)
    events.park(150, SERVE, IO, *NEXT, on=SOCKET)
    events.network(160, OTHER)
    assert requests(events, 200) == [(SERVE, 100, 150, True)]


def test_reading_a_body_waiting_to_write_and_other_sockets_are_parts_of_a_request() -> None:
    events = story()
    at_ns = 100
    events.network(at_ns, SERVE)
    for stack, on in ((BODY, SOCKET), (WRITE, SOCKET), (NEXT, BACKEND)):
        events.park(at_ns + 10, SERVE, IO, *stack, on=on)
        at_ns += 100
        events.network(at_ns, SERVE)
    events.park(450, SERVE, IO, *NEXT, on=SOCKET)
    assert requests(events, 500) == [(SERVE, 100, 450, True)]


def test_a_request_that_comes_just_as_its_goroutine_parks_is_one() -> None:
    """Go's netpollblockcommit then keeps it from parking, so nothing wakes it."""
    events = story()
    events.network(100, SERVE)
    events.park(150, SERVE, IO, *NEXT, on=SOCKET)
    events.run(160, SERVE)
    events.park(200, SERVE, IO, *NEXT, on=SOCKET)
    assert requests(events, 300) == [(SERVE, 100, 150, True), (SERVE, 150, 200, True)]


def test_the_goroutine_that_watches_a_connection_meanwhile_is_not_a_request() -> None:
    """But it tells whose the connection is: of a handler that hangs nothing else does."""
    events = Story({SERVE: "net/http.(*conn).serve", HOLDER: "main.holds"})
    events.create(50, READER, SERVE, "net/http.(*connReader).startBackgroundRead.gowrap2")
    events.park(60, READER, IO, *READ, "net/http.(*connReader).backgroundRead", on=SOCKET)
    events.park(70, SERVE, MUTEX, *LOCK)
    assert requests(events, 500) == [(SERVE, 0, 500, False)]


def test_a_connection_that_is_closed_is_not_a_request() -> None:
    """Whether the client does that, or a goroutine."""
    events = story()
    events.network(100, SERVE)
    events.end(120, SERVE)
    assert requests(events, 200) == []
    events = story()
    events.wake(100, SERVE, HOLDER)
    events.park(120, SERVE, MUTEX, *LOCK)
    assert requests(events, 200) == []


def test_the_last_request_of_a_connection_ends_with_its_goroutine() -> None:
    events = story()
    events.network(100, SERVE)
    events.create(110, READER, SERVE, "net/http.(*connReader).backgroundRead")
    events.end(180, SERVE)
    assert requests(events, 200) == [(SERVE, 100, 180, True)]


def test_requests_that_had_begun_or_continue_are_not_whole() -> None:
    events = Story({SERVE: "net/http.(*conn).serve"})
    events.park(50, SERVE, IO, *NEXT, on=SOCKET)
    events.network(100, SERVE)
    events.park(120, SERVE, MUTEX, *LOCK)
    assert requests(events, 200) == [(SERVE, 0, 50, False), (SERVE, 100, 200, False)]


def test_where_one_goroutine_reads_for_others_a_request_is_the_life_of_another() -> None:
    """As in HTTP/2: what reads frames was created by what creates the handlers."""
    events = Story({SERVE: "net/http.(*http2serverConn).serve"})
    events.create(10, READER, SERVE, "net/http.(*http2serverConn).readFrames")
    frames = (*READ, "net/http.(*http2serverConn).readFrames")
    events.park(20, READER, IO, *frames, on=SOCKET)
    events.park(30, SERVE, "select", "net/http.(*http2serverConn).serve")
    for number, goid in enumerate((11, 12)):
        at_ns = 100 + 50 * number
        events.network(at_ns, READER)
        events.wake(at_ns + 5, SERVE, READER)
        events.park(at_ns + 10, READER, IO, *frames, on=SOCKET)
        events.create(at_ns + 20, goid, SERVE, "net/http.(*http2serverConn).runHandler")
        events.park(at_ns + 30, SERVE, "select", "net/http.(*http2serverConn).serve")
    events.create(220, 13, 11, "main.handle.func1")  # no request: its handler's
    events.end(300, 11)
    events.end(400, 12)
    assert requests(events, 500) == [(11, 100, 300, True), (12, 150, 400, True)]


def test_a_wait_of_before_the_trace_is_known_by_its_stack() -> None:
    events = Story({SERVE: "net/http.(*conn).serve"})
    events.park(0, SERVE, IO, *NEXT)
    events.network(100, SERVE)
    events.park(200, SERVE, IO, *NEXT, on=SOCKET)
    assert requests(events, 300) == [(SERVE, 100, 200, True)]


@pytest.mark.parametrize("what", ["10.0.0.2:4242", "[::1]:80", ":8080"])
def test_addresses_are_distinguished_from_functions_and_labels(what: str) -> None:
    assert is_address(what)
    assert not is_address(f"address={what}")
    assert not is_address("main.(*server).handle")


def test_the_tables_say_how_many_how_long_and_what_the_slowest_waited_for() -> None:
    events = story(OTHER)
    events.park(0, OTHER, IO, "main.accepts", on=LISTENER)
    ms = 1_000_000
    events.network(10 * ms, SERVE)
    events.park(20 * ms, SERVE, IO, *NEXT, on=SOCKET)
    events.park(25 * ms, HOLDER, IO, *READ, "main.ask", on=BACKEND)
    events.network(30 * ms, SERVE)
    events.park(31 * ms, SERVE, MUTEX, *LOCK, on=WaitObject("main.mu"))
    events.network(91 * ms, HOLDER)
    events.wake(91 * ms, SERVE, HOLDER)
    events.park(92 * ms, SERVE, IO, *NEXT, on=SOCKET)
    tables = TraceTables(events.timeline(100 * ms), width=80, color=False)
    _, (heading, text), (_, all_of_them), (slowest, path) = tables.parts(Asked(":8080"))
    assert heading == "Requests on :8080"
    assert text == (
        "  2 requests on 1 connection: 72.0 ms, mean 36.0 ms\n"
        "  the slowest took 62.0 ms at 0.030 s (G1 net/http.(*conn).serve)\n"
        "  between them: 28.0 ms in 3 waits\n"
    )
    assert slowest == "The slowest: 62.0 ms at 0.030 s (G1 net/http.(*conn).serve)"
    assert path.splitlines()[0] == (
        "97 % of that time it waited for main.mu (sync.Mutex.Lock), held by main.holds, which "
        "waited for the network (10.0.0.2:5432)."
    )
    assert "60.0 ms  83.3%  sync.Mutex.Lock main.mu in main.handle" in all_of_them
    assert "held by main.holds: network 10.0.0.2:5432 in main.ask" in all_of_them
    _, _, (_, first) = tables.parts(Asked(":8080", 0.0, 0.025))
    assert first.splitlines()[0] == "100 % of that time it ran."


def test_a_connection_without_goroutines_says_so() -> None:
    tables = TraceTables(story().timeline(1000), width=80, color=False)
    assert "No goroutine waited for such a connection" in tables.parts(Asked(":1"))[1][1]


def test_pauses_of_the_recording_divide_requests() -> None:
    events = story()
    events.network(100, SERVE)
    events.pause(200, 900)
    events.run(950, SERVE)
    events.park(990, SERVE, IO, *NEXT, on=SOCKET)
    found = requests(events, 1000)
    assert [(begin, end, whole) for _, begin, end, whole in found] == [
        (100, 200, False),
        (900, 990, False),
    ]
    assert Request(1, 0, 10, is_begun=True, is_ended=False).length_ns == 10


def test_an_event_of_the_collector_is_not_a_request() -> None:
    events = story()
    events.network(100, SERVE)
    events.of_thread(110, EventKind.YIELD, SERVE)
    events.run(150, SERVE)
    events.park(200, SERVE, IO, *NEXT, on=SOCKET)
    assert requests(events, 300) == [(SERVE, 100, 200, True)]


def test_requests_without_a_wait_in_between_are_distinguished_by_what_watches_meanwhile() -> None:
    """net/http creates a background reader for each; one that has read byte tells no end."""
    events = story()
    background = "net/http.(*connReader).backgroundRead"
    events.network(100, SERVE)
    for number, reader in enumerate((11, 12, 13)):
        at_ns = 100 + 100 * number
        events.create(at_ns + 20, reader, SERVE, background)
        events.park(at_ns + 30, reader, IO, *READ, background, on=SOCKET)
        if number == 1:
            events.network(at_ns + 50, reader)
        else:
            events.wake(at_ns + 90, reader, SERVE)
        events.end(at_ns + 95, reader)
    events.park(400, SERVE, IO, *NEXT, on=SOCKET)
    assert requests(events, 500) == [
        (SERVE, 100, 195, True),
        (SERVE, 195, 320, True),
        (SERVE, 320, 400, True),
    ]
