"""The samples of a dump: a goroutine that moves regularly does not seem to stand."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from ebpfprof.goruntime.goroutines.fields import wait_of
from ebpfprof.goruntime.goroutines.table import Heads
from ebpfprof.goruntime.waits import dump as module
from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.goruntime.waits.standing import DUMPED, DUMPED_SLOWLY
from ebpfprof.profile.goroutines import GoroutineDump

DUMPS = 300
GOROUTINES = 100
APART_S = 0.5
PARKS = 16  # of each turn of a loop, so trackingSeq is the same after 16 turns
TURN_S = 0.002, 0.003
PC = 0x401000
WAITING, REASON = 4, 14
STANDS = 0  # the id of the goroutine that does not move


class MadeUpTime:
    """A clock that sleeping moves."""

    CLOCK_MONOTONIC = 1

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def clock_gettime_ns(self, _: int) -> int:
        return int(self.now_s * 1e9)

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_s += seconds


class MadeUpProgram:
    """Its goroutines go round in loops of their own, most of the time parked at one place."""

    counted = None

    def __init__(self, clock: MadeUpTime, sample_s: float) -> None:
        self._clock, self._sample_s = clock, sample_s
        self._turns_s = [random.uniform(*TURN_S) for _ in range(GOROUTINES)]
        self.samples = 0

    def read_table(self) -> Heads:
        self.samples += 1
        self._clock.now_s += self._sample_s
        waits = [
            wait_of(WAITING, REASON, self._sequence(goid), goid + 1) for goid in range(GOROUTINES)
        ]
        return Heads(np.zeros(GOROUTINES, np.uint64), np.array(waits, np.uint64), {}, 0)

    def scan(self) -> Any:  # noqa: ANN401 - what the dumper reads of it
        found = [
            SimpleNamespace(goid=goid, is_parked=True, pcs=(PC,), wait=wait)
            for goid, wait in enumerate(self.read_table().waits.tolist())
        ]
        return SimpleNamespace(goroutines=found)

    def _sequence(self, goid: int) -> int:
        turns = 0 if goid == STANDS else int(self._clock.now_s / self._turns_s[goid])
        return turns * PARKS % 256


def stood(sample_s: float, monkeypatch: pytest.MonkeyPatch) -> tuple[set[int], int]:
    """Which goroutines a dump says have not moved, and its number of samples."""
    clock = MadeUpTime()
    monkeypatch.setattr(module, "time", clock)
    made_up = MadeUpProgram(clock, sample_s)
    dumper = GoroutineDumper.__new__(GoroutineDumper)
    monkeypatch.setattr(dumper, "_scanner", made_up, raising=False)
    monkeypatch.setattr(dumper, "_waits", mock.MagicMock(), raising=False)
    monkeypatch.setattr(dumper, "_look_up", lambda _: None)
    monkeypatch.setattr(dumper, "_confirmed", lambda made, *_: made)
    still: dict[int, int] = {}

    def made(
        _: object, __: object, stood_ns: dict[int, int], apart_ns: int, samples: int
    ) -> GoroutineDump:
        still.update(stood_ns)
        return GoroutineDump(1, "made-up", "go1.27", apart_ns, (), 0, 0, 0, 0, 0, looks=samples)

    monkeypatch.setattr(dumper, "_made", made)
    found = dumper.dump(apart_s=APART_S)
    assert found.looks == made_up.samples
    assert set(still.values()) <= {found.apart_ns}
    assert found.apart_ns >= APART_S * 1e9
    return set(still), found.looks


def test_regular_goroutines_do_not_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """With four samples about as far apart from each other, some of these dumps had one."""
    random.seed("dumps")
    for _ in range(DUMPS):
        assert stood(0.0001, monkeypatch) == ({STANDS}, DUMPED.samples)


def test_where_samples_take_long_there_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    found, samples = stood(0.3, monkeypatch)
    assert STANDS in found
    assert samples == DUMPED_SLOWLY.samples
