"""What is stuck in a program by a dump: lost wakes, all goroutines asleep, waits for locks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebpfprof.profile.asleep import Asleep
from ebpfprof.profile.deadlocks import Circle
from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump, Outside
from ebpfprof.profile.model import Frame
from ebpfprof.profile.stuck import LostWake, held, stuck
from ebpfprof.profile.waiting_for import FileWait, LockState, OpenFile, Sureness, WaitsFor

FREE = LockState(0xC000, "sync.Mutex", None)
HELD = replace(FREE, is_locked=True)
FOR_HELD = WaitsFor(HELD)
SIGNALS = (Frame("runtime.notetsleepg", "", 0), Frame("os/signal.signal_recv", "", 0))


def goroutine(
    goid: int, state: str = "chan receive", waits: WaitsFor | None = None, stood_ns: int = 1
) -> DumpedGoroutine:
    about = waits or WaitsFor()
    return DumpedGoroutine(goid, state, (), True, stood_ns, 0, False, None, 0, (), (), about)


def locking(goid: int, waits: WaitsFor = FOR_HELD) -> DumpedGoroutine:
    return goroutine(goid, "sync.Mutex.Lock", waits)


def listening(goid: int, *, is_listener: bool = True) -> DumpedGoroutine:
    wait = FileWait(OpenFile(7, "tcp", "*:80", is_listener=is_listener), is_write=False)
    return goroutine(goid, "IO wait", WaitsFor(file_wait=wait))


def for_signal(goid: int) -> DumpedGoroutine:
    return goroutine(goid, waits=WaitsFor(for_signal=True))


def receiver(goid: int) -> DumpedGoroutine:
    return replace(goroutine(goid, "syscall", stood_ns=0), frames=SIGNALS)


def dump(*found: DumpedGoroutine, threads: int | None = 0, moved: int = 0) -> GoroutineDump:
    outside = Outside(threads)
    return GoroutineDump(7, "shop", "go1.27", 1, found, 4, moved, 0, outside=outside)


def kinds(found: GoroutineDump) -> list[tuple[type, Sureness]]:
    return [(type(each), each.sureness) for each in stuck(found)]


def test_all_that_wait_for_each_other_alone_are_certainly_asleep() -> None:
    (found,) = stuck(dump(goroutine(1), goroutine(2, "select"), receiver(3)))
    assert isinstance(found, Asleep)
    assert found.sureness is Sureness.CERTAIN
    assert [each.goid for each in found.goroutines] == [1, 2]


@pytest.mark.parametrize("other", [listening(3), for_signal(3)], ids=["a connection", "a signal"])
def test_what_may_come_from_outside_makes_it_likely_and_only_with_a_lock(
    other: DumpedGoroutine,
) -> None:
    assert kinds(dump(goroutine(1), goroutine(2, "select"), other, receiver(4))) == []
    found = dump(goroutine(1), locking(2), other, receiver(4))
    assert kinds(found) == [(Asleep, Sureness.LIKELY)]


@pytest.mark.parametrize("threads", [1, None])
def test_threads_of_c_may_call_go(threads: int | None) -> None:
    assert kinds(dump(goroutine(1), threads=threads)) == []
    assert kinds(dump(locking(1), threads=threads)) == [(Asleep, Sureness.LIKELY)]


@pytest.mark.parametrize(
    "other",
    [
        goroutine(3, "running", stood_ns=0),
        goroutine(3, "runnable", stood_ns=0),
        goroutine(3, "syscall", stood_ns=0),
        goroutine(3, "sleep"),
        goroutine(3, "GC assist wait"),
        goroutine(3, stood_ns=0),
        listening(3, is_listener=False),
    ],
    ids=lambda each: each.state,
)
def test_one_goroutine_that_may_continue_is_enough(other: DumpedGoroutine) -> None:
    assert kinds(dump(locking(1))) == [(Asleep, Sureness.CERTAIN)]
    assert kinds(dump(locking(1), other)) == []


def test_nothing_is_reported_without_further_samples_or_with_goroutines_missing() -> None:
    assert kinds(replace(dump(locking(1)), outside=None)) == []
    assert kinds(dump(locking(1), moved=1)) == []
    assert kinds(replace(dump(locking(1)), beyond=1)) == []
    assert kinds(dump()) == []


def test_lost_wakes_are_by_lock_and_sureness() -> None:
    certain = WaitsFor(FREE, lost_wake=Sureness.CERTAIN)
    likely = WaitsFor(replace(FREE, address=0xD000), lost_wake=Sureness.LIKELY)
    moved = replace(locking(4, certain), stood_ns=0)
    found = stuck(
        dump(locking(1, certain), locking(2, likely), locking(3, certain), moved, listening(5))
    )
    lost = [each for each in found if isinstance(each, LostWake)]
    assert [(each.lock.address, each.sureness) for each in lost] == [
        (0xC000, Sureness.CERTAIN),
        (0xD000, Sureness.LIKELY),
    ]
    assert [[each.goid for each in one.goroutines] for one in lost] == [[1, 3], [2]]


def test_waits_that_are_in_no_finding_are_reported_with_who_may_hold_their_lock() -> None:
    other = WaitsFor(replace(HELD, address=0xD000), may_hold=(9, 1), surely_hold=(1,))
    itself = locking(1, WaitsFor(HELD, may_hold=(1,)))
    found = replace(dump(itself, locking(2, other), goroutine(9, "sleep")), outside=None)
    known = stuck(found)
    assert [type(each) for each in known] == [Circle]
    (wait,) = held(found, known)
    assert [each.goid for each in wait.goroutines] == [2]
    assert [holder.goid for holder in wait.holders] == [1, 9]
