"""Rings of events: what was written, what is being written, what was overwritten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ebpfprof.tracing.rings import EVENT, EventRings

SLOTS = 8


class Kernel:
    """Writes events into two rings as bpf/trace/events.h does."""

    def __init__(self) -> None:
        self.rings: Any = np.zeros(2, [("taken", "<u8")])
        self.slots: Any = np.zeros(2 * SLOTS, EVENT)
        self.reader = EventRings(self.rings, self.slots, 2)

    def begin(self, ring: int, at_ns: int) -> int:
        """Take a number and begin to write its event; end() must follow."""
        taken = int(self.rings["taken"][ring])
        self.rings["taken"][ring] += 1
        slot = ring * SLOTS + taken % SLOTS
        self.slots[slot] = np.zeros((), EVENT)
        self.slots["at_ns"][slot] = at_ns
        return taken

    def end(self, ring: int, taken: int) -> None:
        self.slots["number"][ring * SLOTS + taken % SLOTS] = taken + 1

    def write(self, ring: int, at_ns: int) -> None:
        self.end(ring, self.begin(ring, at_ns))

    def read(self) -> list[int]:
        times: list[int] = self.reader.read()["at_ns"].tolist()
        return times


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


def test_events_of_all_rings_come_by_time_and_once(kernel: Kernel) -> None:
    for ring, at_ns in ((0, 10), (1, 5), (1, 20), (0, 15)):
        kernel.write(ring, at_ns)
    assert kernel.read() == [5, 10, 15, 20]
    assert kernel.read() == []
    kernel.write(1, 30)
    assert kernel.read() == [30]


def test_an_event_that_is_being_written_comes_later_with_those_behind_it(kernel: Kernel) -> None:
    kernel.write(0, 10)
    unfinished = kernel.begin(0, 20)
    kernel.write(0, 30)
    assert kernel.read() == [10]
    kernel.end(0, unfinished)
    assert kernel.read() == [20, 30]
    assert kernel.reader.overwritten == 0


def test_what_was_overwritten_is_counted(kernel: Kernel) -> None:
    for at_ns in range(SLOTS + 3):
        kernel.write(0, at_ns)
    assert kernel.read() == list(range(3, SLOTS + 3))
    assert kernel.reader.overwritten == 3


def test_an_old_event_in_a_slot_is_not_a_new_one(kernel: Kernel) -> None:
    for at_ns in range(SLOTS):
        kernel.write(0, at_ns)
    kernel.read()
    unfinished = kernel.begin(0, 100)
    assert kernel.read() == []
    kernel.end(0, unfinished)
    assert kernel.read() == [100]


def test_where_only_the_last_count_nothing_was_lost_and_the_beginning_is_known(
    kernel: Kernel,
) -> None:
    for at_ns in range(SLOTS + 3):
        kernel.write(0, at_ns)
    kernel.write(1, 1)
    kernel.reader.forget_overwritten()
    assert kernel.read() == [1, *range(3, SLOTS + 3)]
    assert kernel.reader.overwritten == 0
    assert kernel.reader.whole_since_ns == 3
