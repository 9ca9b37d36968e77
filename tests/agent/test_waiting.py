"""What waits for a sink: its bounds, its order, and who is counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ebpfprof.agent.sinks.waiting import NOTE_BYTES, InRing, QueueBounds, WaitingItems, size_of
from ebpfprof.profile.service import ProcessEnd, ServiceWindow
from tests.backends.windows import window_of

WINDOW = window_of(1_790_000_000.0)
SIZE = size_of(WINDOW)
END = ProcessEnd(7, 9, 1.0)


def windows(count: int) -> list[ServiceWindow]:
    return [replace(WINDOW, pid=number) for number in range(count)]


def queue(dropped: Counter[str], most: int = 1 << 30, *, has_ring: bool = True) -> WaitingItems:
    return WaitingItems(QueueBounds(most, 60.0), dropped, lambda: has_ring)


def mixed(dropped: Counter[str]) -> WaitingItems:
    """A queue with two windows in the ring and two in memory, a second apart."""
    made = queue(dropped, 2 * SIZE + 2 * NOTE_BYTES)
    for number, each in enumerate(windows(4)):
        made.add(each, float(number))
    assert made.bytes == 2 * SIZE + 2 * NOTE_BYTES
    return made


def pids(items: WaitingItems) -> list[int]:
    """The processes of all items in the order in which they have their turn; empties the queue."""
    found = []
    while (due := items.due(from_ring=True)) is not None:
        window = due.item.window if isinstance(due.item, InRing) else due.item
        found.append(window.pid)
        assert items.remove(due)
    assert (items.bytes, len(items)) == (0, 0)
    return found


@pytest.mark.parametrize(("now_s", "left"), [(60.0, 4), (60.5, 3), (62.5, 1), (64.0, 0)])
def test_what_is_too_old_goes_from_memory_and_ring(now_s: float, left: int) -> None:
    dropped = Counter[str]()
    items = mixed(dropped)
    items.drop_old(now_s)
    assert len(items) == left
    assert dropped["too_old"] == 4 - left
    assert pids(items) == list(range(4 - left, 4))


def test_all_that_is_left_is_counted() -> None:
    dropped = Counter[str]()
    items = mixed(dropped)
    items.add(END, 5.0)
    items.drop_all("closed")
    assert (dropped["closed"], items.bytes, len(items)) == (4, 0, 0)


def test_a_note_of_a_window_holds_no_profile() -> None:
    items = mixed(Counter())
    due = items.due(from_ring=True)
    assert due
    assert isinstance(due.item, InRing)
    assert not due.item.window.profiles
    assert due.item.kinds == {"block", "cpu"}
    newer = items.due(from_ring=False)
    assert newer
    assert newer.item == windows(4)[2]


@pytest.mark.parametrize("has_ring", [False, True])
def test_only_windows_wait_in_the_ring(has_ring: bool) -> None:
    dropped = Counter[str]()
    items = queue(dropped, SIZE + 100, has_ring=has_ring)
    items.add(END, 0.0)
    for window in windows(2):
        items.add(window, 1.0)
    # The end is gone, and no window: it is not counted.
    assert dropped["queue_full"] == (0 if has_ring else 1)
    assert pids(items) == ([0, 1] if has_ring else [1])


def test_another_queue_continues_with_the_one_that_failed() -> None:
    before, after = mixed(Counter()), queue(Counter())
    newest = before.due(from_ring=False)
    assert newest
    before.keep(newest)
    left, begun = before.take_all()
    assert (len(before), before.bytes) == (0, 0)
    after.take_over(left, begun)
    assert (len(after), after.bytes) == (4, 2 * SIZE + 2 * NOTE_BYTES)
    assert pids(after) == [2, 0, 1, 3]
