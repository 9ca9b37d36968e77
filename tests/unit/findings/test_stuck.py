"""Deadlocks with those behind them, hangs with their holders, requests that never end; leaks."""

from __future__ import annotations

import pytest

from ebpfprof.findings import leaks, stuck
from ebpfprof.findings.evidence import Evidence
from ebpfprof.findings.rules import explained
from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineGroup
from ebpfprof.profile.leaks import Suspects
from ebpfprof.profile.model import Frame
from ebpfprof.profile.waiting_for import LockState, Sureness, WaitsFor
from tests.unit.findings.evidence import (
    HANDLER,
    LOCK,
    READ,
    SELECT,
    SEND,
    channel,
    dump,
    evidence,
    for_lock,
    for_peer,
    goroutine,
    waits,
)

SECOND = 1_000_000_000
PRINT = (*LOCK, "main.(*invoicer).print:25", *HANDLER)
JOIN = ("runtime.gopark", "sync.runtime_SemacquireWaitGroup", "sync.(*WaitGroup).Wait")
CREATOR = Frame("main.start", "/src/x.go", 7)


def mutex(address: int) -> LockState:
    return LockState(address, "sync.Mutex", "main.invoicer.mu", is_locked=True, waiters=9)


def locked(goid: int, address: int, *holders: int, waited_ns: int = 6 * SECOND) -> DumpedGoroutine:
    return goroutine(
        goid,
        "sync.Mutex.Lock",
        *PRINT,
        waits_for=for_lock(mutex(address), *holders),
        stood_ns=waited_ns,
        waited_ns=waited_ns,
    )


def suspects(*functions: str, state: str, came: int = 20, **fields: object) -> Suspects:
    members = tuple(
        goroutine(goid, state, *functions, created_by=CREATOR, **fields) for goid in range(came)
    )
    return Suspects(GoroutineGroup(members), True, 251.0, SECOND, came=came)


def leaking(*found: Suspects) -> Evidence:
    return evidence(waits("running", *HANDLER, mean=1), leaks=found)


def test_a_deadlock_counts_those_that_wait_behind_it() -> None:
    moment = dump(
        locked(1, 0xA, 2), locked(2, 0xB, 1), locked(3, 0xA, 2), locked(4, 0xC, 3), locked(5, 0xD)
    )
    (finding,) = [one for one in stuck.find(evidence(dumps=[moment])) if one.kind == "deadlock"]
    assert finding.title == (
        "Deadlock: 2 goroutines wait for each other's locks and can never continue; "
        "2 more wait behind them."
    )


def test_a_hang_names_the_holder_and_the_peer_that_it_waits_for() -> None:
    holds = goroutine(
        1, "IO wait", *READ, "main.(*printer).ask:9", waits_for=for_peer("10.0.0.9:631")
    )
    (finding,) = stuck.find(evidence(dumps=[dump(holds, *[locked(i, 0xA, 1) for i in (2, 3)])]))
    assert finding.kind == "hang"
    assert finding.lines == (
        "Held by goroutine 1, which waits for 10.0.0.9:631 in main.(*printer).ask (printer.go:9).",
    )


def test_senders_each_to_a_channel_of_its_own_leak_and_do_not_hang() -> None:
    sends = (*SEND, "main.search:18")
    members = [
        goroutine(i, "chan send", *sends, waited_ns=6 * SECOND, channels=(channel(i, 0, 0),))
        for i in range(1, 21)
    ]
    found = evidence(dumps=[dump(*members)], leaks=(suspects(*sends, state="chan send"),))
    assert [one.kind for one in explained(found).findings] == ["goroutine_leak"]


def test_senders_to_one_channel_hang() -> None:
    shared = (channel(0xC, 0, 0),)
    members = [
        goroutine(
            i, "chan send", *SEND, "main.f:1", stood_ns=1, waited_ns=6 * SECOND, channels=shared
        )
        for i in range(1, 21)
    ]
    assert [one.kind for one in stuck.find(evidence(dumps=[dump(*members)]))] == ["hang"]


def chat(users: dict[int, tuple[int, ...]]) -> Evidence:
    """A room holds a lock, and waits to send to a member who wants that lock; `users` have the
    member's channel."""
    to_member = channel(0xC, 0, 0)
    say = goroutine(
        1,
        "chan send",
        *(*SEND, "main.(*room).say:29"),
        channels=(to_member,),
        stood_ns=6 * SECOND,
        waited_ns=6 * SECOND,
    )
    members = [locked(goid, 0xA, 1) for goid in (2, 3, 4)]
    return evidence(
        dumps=[dump(say, *members, goroutine(5, "IO wait", *READ))], channel_users=users
    )


def test_a_goroutine_that_sends_to_one_that_waits_for_its_lock_is_a_deadlock() -> None:
    (finding,) = explained(chat({0xC: (1, 2)})).findings
    assert finding.kind == "deadlock"
    assert not finding.is_certain
    assert finding.title == (
        "Deadlock: 2 goroutines wait for each other, over a channel; 2 more wait behind them."
    )
    assert finding.lines == (
        "Goroutine 1 has main.invoicer.mu and waits in main.(*room).say (room.go:29): chan send.",
        "Goroutine 2 waits for main.invoicer.mu in main.(*invoicer).print (invoicer.go:25): "
        "Mutex.Lock.",
    )


@pytest.mark.parametrize("users", [{}, {0xC: (1, 2, 5)}, {0xC: (1,)}])
def test_a_channel_that_others_may_use_is_no_deadlock_but_one_hang(
    users: dict[int, tuple[int, ...]],
) -> None:
    (finding,) = explained(chat(users)).findings
    assert finding.kind == "hang"
    assert finding.title == (
        "Hang: 4 goroutines have waited 6.0 s or longer for main.invoicer.mu: "
        "Mutex.Lock in main.(*invoicer).print (invoicer.go:25)."
    )
    assert finding.lines == (
        "Held by goroutine 1, which waits (chan send) in main.(*room).say (room.go:29).",
    )


def test_hangs_for_two_reasons_are_two() -> None:
    others = [locked(goid, 0xB, 9) for goid in (6, 7)]
    moment = dump(*[locked(goid, 0xA, 1) for goid in (2, 3, 4)], *others)
    assert [one.kind for one in stuck.find(evidence(dumps=[moment]))] == ["hang"] * 2


def test_requests_that_never_get_their_parts_hang() -> None:
    found = leaking(suspects(*JOIN, "main.report:43", *HANDLER, state="sync.WaitGroup.Wait"))
    (finding,) = explained(found).findings
    assert finding.kind == "hang"
    assert (
        finding.title
        == "Hang: 20 requests never continued: WaitGroup.Wait in main.report (x.go:43)."
    )
    assert finding.lines == ("There are about 250 more each minute.",)


@pytest.mark.parametrize(
    "load",
    [
        suspects(*SELECT, "main.events:3", *HANDLER, state="select"),
        suspects(
            *READ,
            *("bufio.(*Reader).fill", "bufio.(*Reader).Peek", "net/http.(*conn).serve"),
            state="IO wait",
        ),
        suspects(*SELECT, "net/http.(*persistConn).writeLoop", state="select"),
        suspects("main.f:1", state="chan receive", came=5),
    ],
)
def test_more_clients_and_connections_are_no_leak(load: Suspects) -> None:
    assert not list(leaks.find(leaking(load)))


def test_connections_whose_answers_nobody_reads_leak() -> None:
    unread = suspects(*SELECT, "net/http.(*persistConn).readLoop", state="select")
    assert [one.kind for one in leaks.find(leaking(unread))] == ["goroutine_leak"]


def test_leaks_of_one_creator_are_one() -> None:
    found = leaking(
        suspects(*SEND, "main.search:18", state="chan send"),
        suspects(*SEND, "main.search:29", state="chan send"),
    )
    (finding,) = leaks.find(found)
    assert finding.title == (
        "Leak: 20 goroutines never continued, about 250 more a minute: "
        "chan send in main.search (x.go:18)."
    )


def test_lost_wakes_of_one_and_of_several() -> None:
    free = LockState(0xF, "sync.Mutex", "main.invoicer.mu", waiters=1)
    waiting = [
        goroutine(
            goid,
            "sync.Mutex.Lock",
            *PRINT,
            waits_for=WaitsFor(free, lost_wake=Sureness.CERTAIN),
            stood_ns=6 * SECOND,
        )
        for goid in (1, 2)
    ]
    (finding,) = stuck.find(evidence(dumps=[dump(waiting[0])]))
    assert finding.kind == "lost_wake"
    assert finding.title == "Lost wake: 1 goroutine waits for main.invoicer.mu, which is free."
    assert finding.is_certain
    assert finding.place
    assert finding.place.function == "main.(*invoicer).print"
    (finding,) = stuck.find(evidence(dumps=[dump(*waiting)]))
    assert finding.title == "Lost wake: 2 goroutines wait for main.invoicer.mu, which is free."


def test_one_goroutine_that_waits_behind_a_deadlock() -> None:
    moment = dump(locked(1, 0xA, 2), locked(2, 0xB, 1), locked(3, 0xA, 2))
    (finding,) = [one for one in stuck.find(evidence(dumps=[moment])) if one.kind == "deadlock"]
    assert finding.title.endswith("can never continue; 1 more waits behind them.")


def test_a_goroutine_that_hangs_alone() -> None:
    alone = locked(2, 0xA, 1, waited_ns=600 * SECOND)
    (finding,) = stuck.find(evidence(dumps=[dump(alone)]))
    assert finding.title.startswith("Hang: 1 goroutine has waited 10 min")
