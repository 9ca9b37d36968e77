"""Dumps of a program that moves: the memory of an image, and a clock that sleeping moves."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

import pytest

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.goruntime.waits.dump import dump
from symbolizer.codeanalysis.globals import allgs_address
from tests.images import readers
from tests.images.facts import facts
from tests.images.image import VERSIONS, image
from tests.images.pages import ChangedBytes

VERSION = VERSIONS[-1]
MOVING = ("chan receive", "chan send", "select", "mutex", "wait group", "labelled")
PARKS = 16  # of each turn of a loop, so g.trackingSeq is the same after 16 turns
TURN_S = 0.002, 0.003
APART_S = 0.5
DUMPS = 10


class MadeUpTime:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s

    def clock_gettime_ns(self, _: int) -> int:
        return int(self.now_s * 1e9)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """For a while, there is no other time."""
        with (
            mock.patch("time.sleep", self.sleep),
            mock.patch("time.monotonic", self.monotonic),
            mock.patch("time.clock_gettime_ns", self.clock_gettime_ns),
        ):
            yield


class MovingMemory(ChangedBytes):
    """Memory in which goroutines go round in loops, most of the time parked at one place.

    `turns_s` has how long a turn takes, by the address of g.trackingSeq. To read the list of
    goroutines takes `list_s`.
    """

    def __init__(
        self, clock: MadeUpTime, turns_s: Mapping[int, float], allgs: int, list_s: float
    ) -> None:
        super().__init__(image(VERSION).memory, {}, frozenset())
        self._clock, self._turns_s = clock, turns_s
        self._allgs, self._list_s = allgs, list_s

    def up_to(self, address: int, size: int) -> bytes:
        if address == self._allgs:
            self._clock.now_s += self._list_s
        now_s = self._clock.now_s
        self._changes = {
            at: bytes([int(now_s / turn_s) * PARKS % 256]) for at, turn_s in self._turns_s.items()
        }
        return super().up_to(address, size)


@contextmanager
def moving(clock: MadeUpTime, *, list_s: float) -> Iterator[GoTarget]:
    """The program, in which some goroutines move."""
    ids = {facts(VERSION).goid(name) for name in MOVING}
    with image(VERSION).opened() as go:
        sequence = go.binary.layout.offset("g", "trackingSeq")
        places = [wait.address + sequence for wait in readers.waits(go) if wait.goid in ids]
        allgs = allgs_address(go.binary) + go.load_bias
    turns_s = {place: random.uniform(*TURN_S) for place in places}
    with clock.kept(), image(VERSION).opened(MovingMemory(clock, turns_s, allgs, list_s)) as go:
        yield go


def test_regular_goroutines_do_not_stand() -> None:
    """With four samples about as far apart from each other, some of these dumps had one."""
    random.seed("dumps")
    go_facts = facts(VERSION)
    moves = {go_facts.goid(name) for name in MOVING}
    stand = {go_facts.goid(name) for name in ("holder", "deadlock", "nil channel", "cond", "timer")}
    for _ in range(DUMPS):
        with moving(MadeUpTime(), list_s=0.0001) as go:
            found = dump(go, apart_s=APART_S)
        stood = {goroutine.goid for goroutine in found.goroutines if goroutine.stood_ns}
        assert not stood & moves
        assert stood >= stand
        assert found.apart_ns >= APART_S * 1e9


@pytest.mark.parametrize(("list_s", "samples"), [(0.0001, 8), (0.3, 4)])
def test_where_samples_take_long_there_are_fewer(list_s: float, samples: int) -> None:
    with moving(MadeUpTime(), list_s=list_s) as go:
        found = dump(go, apart_s=APART_S)
    assert found.samples == samples
    stood = {goroutine.goid for goroutine in found.goroutines if goroutine.stood_ns}
    assert facts(VERSION).goid("cond") in stood


class RestlessMemory(ChangedBytes):
    """Memory in which g.trackingSeq is another one at each read: some goroutines never rest."""

    def __init__(self, places: Collection[int]) -> None:
        super().__init__(image(VERSION).memory, {}, frozenset())
        self._places, self._reads = places, 0

    def up_to(self, address: int, size: int) -> bytes:
        self._reads += 1
        self._changes = dict.fromkeys(self._places, bytes([self._reads % 256]))
        return super().up_to(address, size)


def test_goroutines_that_never_rest_have_no_stacks() -> None:
    ids = {facts(VERSION).goid(name) for name in MOVING}
    with image(VERSION).opened() as go:
        sequence = go.binary.layout.offset("g", "trackingSeq")
        places = [wait.address + sequence for wait in readers.waits(go) if wait.goid in ids]
    with mock.patch("time.sleep"), image(VERSION).opened(RestlessMemory(places)) as go:
        found = readers.goroutines(go)
        causes = readers.causes(go)
        text = readers.traceback(go)
    assert found.moved == len(ids)
    for goroutine in found.goroutines:
        assert (goroutine.frames == ()) == (goroutine.goid in ids), goroutine
        assert not goroutine.stood_ns or goroutine.goid not in ids
    assert not causes.keys() & ids
    blocks = {int(block.split(" ", 2)[1]): block for block in text.strip().split("\n\n")}
    assert all(blocks[goid].count("\n") <= 3 for goid in ids)
    assert blocks[facts(VERSION).goid("cond")].count("\n") > 3
