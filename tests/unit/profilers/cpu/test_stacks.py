"""Names of the addresses in CPU stacks, of a program that runs for days."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from ebpfprof.process.mappings import MappedObjects
from ebpfprof.process.process import Target
from ebpfprof.profile.model import Sample
from ebpfprof.profilers.cpu.cpu_names import CpuTranslator
from ebpfprof.profilers.cpu.sample_table import CpuStack
from ebpfprof.profilers.cpu.unwinder import Ending

DEPTH = 10
PERIOD_NS = 1_000_000


def stack(number: int) -> CpuStack:
    """A stack whose addresses no other has; nothing is mapped there."""
    pcs = range(0x1000 + number * DEPTH, 0x1000 + (number + 1) * DEPTH)
    return CpuStack((), tuple(pcs), Ending.WHOLE)


def read(translator: CpuTranslator, *numbers: int) -> list[Sample]:
    stacks = {stack(number): 1 for number in numbers}
    return translator.samples(stacks, PERIOD_NS, dict.fromkeys(stacks, ()), None)


def kept(translator: CpuTranslator) -> int:
    """How many addresses it knows, and how many locations."""
    return len(translator._physical) + len(translator._locations)


@pytest.fixture
def objects() -> Iterator[MappedObjects]:
    with Target(os.getpid()) as ourselves, MappedObjects(ourselves) as found:
        yield found


def test_unused_names_are_dropped(objects: MappedObjects) -> None:
    now_s = 0.0
    translator = CpuTranslator(objects, None, lambda: now_s)
    first = read(translator, *range(50))
    assert [len(sample.locations) for sample in first] == [DEPTH] * 50
    read(translator, 50)
    assert kept(translator) == 51 * DEPTH * 2  # for a while: another reading may need them
    now_s = 100.0
    read(translator, 50, 51)
    assert kept(translator) == 2 * DEPTH * 2
    now_s = 101.0
    read(translator, 52)
    assert kept(translator) == 3 * DEPTH * 2


def test_dropped_names_are_found_again(objects: MappedObjects) -> None:
    times_s = itertools.count(0.0, 100.0)
    translator = CpuTranslator(objects, None, lambda: next(times_s))
    first = read(translator, 1, 2)
    read(translator, 3)
    assert read(translator, 1, 2) == first
