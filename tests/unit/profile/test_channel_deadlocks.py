"""Deadlocks over channels: who waits for whom, and who else could help."""

from __future__ import annotations

from ebpfprof.profile.channel_deadlocks import channel_deadlocks, channels_of_hangs
from ebpfprof.profile.goroutines import DumpedGoroutine
from ebpfprof.profile.hanging import HANGS_NS
from ebpfprof.profile.waiting_for import LockState
from tests.unit.findings.evidence import channel, for_lock, goroutine

LOCK = LockState(0xA, "sync.Mutex", "main.mu", is_locked=True)


def on_channel(
    goid: int, address: int, state: str = "chan send", waited_ns: int = HANGS_NS
) -> DumpedGoroutine:
    return goroutine(goid, state, "main.f", channels=(channel(address, 0, 0),), waited_ns=waited_ns)


def for_mutex(goid: int, *holders: int) -> DumpedGoroutine:
    waits_for = for_lock(LOCK, *holders)
    return goroutine(goid, "sync.Mutex.Lock", "main.g", waits_for=waits_for, waited_ns=HANGS_NS)


def ids(
    *goroutines: DumpedGoroutine, **users: tuple[int, ...]
) -> list[tuple[list[int], list[int]]]:
    """The ids of those in each deadlock, and behind it; users by the channel's number."""
    known = {int(name.removeprefix("c")): users_of for name, users_of in users.items()}
    return [
        ([one.goid for one in deadlock.goroutines], [one.goid for one in deadlock.behind])
        for deadlock in channel_deadlocks(goroutines, known)
    ]


def test_two_goroutines_that_send_to_each_other() -> None:
    assert ids(on_channel(1, 1), on_channel(2, 2), c1=(1, 2), c2=(1, 2)) == [([1, 2], [])]


def test_those_that_wait_for_a_stuck_one_are_behind_it() -> None:
    found = ids(
        on_channel(1, 1), for_mutex(2, 1), for_mutex(3, 1), on_channel(4, 4), c1=(1, 2), c4=(3, 4)
    )
    assert found == [([1, 2], [3, 4])]


def test_one_that_can_continue_frees_all_that_wait_for_it() -> None:
    moving = on_channel(3, 3, waited_ns=HANGS_NS - 1)
    assert ids(on_channel(1, 1), for_mutex(2, 1), moving, c1=(1, 2, 3)) == []
    assert ids(on_channel(1, 1), for_mutex(2, 1, 3), moving, c1=(1, 2)) == []


def test_many_that_send_to_one_channel_do_not_wait_for_each_other() -> None:
    assert ids(on_channel(1, 1), on_channel(2, 1), on_channel(3, 1), c1=(1, 2, 3)) == []


def test_a_receiver_waits_for_a_sender() -> None:
    receives = on_channel(1, 1, state="chan receive")
    assert ids(receives, for_mutex(2, 1), c1=(1, 2)) == [([1, 2], [])]


def test_channels_of_senders_and_of_holders_of_locks_are_of_interest() -> None:
    idle = on_channel(4, 4, state="chan receive")
    holder = on_channel(3, 3, state="chan receive")
    hanging = [on_channel(1, 1), for_mutex(2, 3), holder, idle, on_channel(5, 5, waited_ns=1)]
    assert channels_of_hangs(hanging) == {1, 3}
