"""What is the time of requests: of known handlers, and of connections of other servers."""

from __future__ import annotations

from ebpfprof.findings.evidence import Evidence
from ebpfprof.profile.model import Frame
from tests.unit.findings.evidence import (
    HANDLER,
    READ,
    RECEIVE,
    dump,
    evidence,
    for_peer,
    goroutine,
    listener,
    stack,
    waits,
)

ACCEPT = ("internal/poll.runtime_pollWait", "internal/poll.(*FD).Accept", "main.listen:5")
SERVE = "main.(*session).serve"
NEXT = (*READ, "main.(*session).next:12", f"{SERVE}:30")
ASK = (*READ, "main.ask:7", f"{SERVE}:31")
FASTHTTP = "github.com/valyala/fasthttp.(*Server).serveConn"


def raw_server(peer: str = "10.0.0.7:5432") -> Evidence:
    started = Frame("main.listen", "/src/x.go", 9)
    moment = dump(
        goroutine(1, "IO wait", *ACCEPT, waits_for=listener("[::]:7000")),
        goroutine(
            2,
            "IO wait",
            *NEXT,
            created_by=started,
            waits_for=for_peer("10.1.1.1:60000", local="10.0.0.1:7000"),
        ),
        goroutine(3, "IO wait", *ASK, created_by=started, waits_for=for_peer(peer)),
    )
    return evidence(
        waits("IO wait", *NEXT, mean=5),
        waits("IO wait", *ASK, mean=3),
        waits("running", SERVE, mean=1),
        waits("IO wait", *READ, "main.poll:3", mean=4),
        dumps=[moment],
    )


def test_connections_of_an_accept_loop_are_requests_but_for_waits_for_their_clients() -> None:
    work = raw_server().work
    assert work.is_server
    assert work.requests_ns == 4 * work.length_ns
    assert work.idle_ns == 5 * work.length_ns


def test_handlers_are_requests_where_there_are_any() -> None:
    work = evidence(
        waits("running", *HANDLER, mean=1), waits("IO wait", *READ, "main.poll:3", mean=4)
    ).work
    assert work.is_server
    assert work.requests_ns == work.length_ns


def test_a_connection_that_waits_for_its_next_request_is_idle_though_its_handler_is_there() -> None:
    waiting = (*READ, FASTHTTP)
    moment = dump(
        goroutine(1, "IO wait", *ACCEPT, waits_for=listener(":80")),
        goroutine(2, "IO wait", *waiting, waits_for=for_peer("1.1.1.1:9", local="10.0.0.1:80")),
    )
    work = evidence(
        waits("IO wait", *waiting, mean=9),
        waits("sleep", "main.f:1", FASTHTTP, mean=1),
        dumps=[moment],
    ).work
    assert (work.idle_ns, work.requests_ns) == (9 * work.length_ns, work.length_ns)


def test_a_program_without_connections_is_no_server() -> None:
    work = evidence(waits("running", "main.work:3", mean=2)).work
    assert not work.is_server
    assert work.of == "the time of goroutines at work"
    assert stack("main.work:3")[0] == work.activities[0].place


def test_goroutines_of_other_programs_that_wait_where_they_began_are_idle() -> None:
    began = "main.subscribe:32"
    work = evidence(
        waits("chan receive", *RECEIVE, began, mean=9),
        waits("chan receive", *RECEIVE, "main.await:1", began, mean=2),
    ).work
    assert (work.idle_ns, work.total_ns) == (9 * work.length_ns, 2 * work.length_ns)
