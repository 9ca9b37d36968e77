"""Samples out of sums: by the stack that is shown, and by labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from ebpfprof.profile.model import Frame, Label, Location
from ebpfprof.profilers.waits.rows import StackTotal, Waiting
from ebpfprof.profilers.waits.wait_samples import wait_samples
from ebpfprof.profilers.waits.wait_stacks import StackTranslator, WaitStack
from symbolizer import GoTableError

CUT, CORRUPT, NO_EVENT = 1000, 2000, 3000
ANNA = (Label("user", "anna"),)


class Translator:
    """Shows no more than the first address of a stack; new objects each time."""

    def look_up(self, return_pcs: Iterable[int]) -> None:
        assert all(isinstance(pc, int) for pc in return_pcs)

    def stack(self, kind: Waiting, return_pcs: Sequence[int]) -> WaitStack | None:
        if CORRUPT in return_pcs:
            raise GoTableError("corrupt")
        if NO_EVENT in return_pcs:
            return None
        return WaitStack((place(return_pcs[0]),), is_cut=CUT in return_pcs, key=return_pcs[0])

    def bare_stack(self, return_pcs: Sequence[int]) -> WaitStack:
        locations = tuple(Location(pc, None, ()) for pc in return_pcs)
        return WaitStack(locations, is_cut=False, key=hash(tuple(return_pcs)))


def place(pc: int) -> Location:
    return Location(pc, None, (Frame("main.f", "/f.go", pc),))


def total(*return_pcs: int, count: float = 1) -> StackTotal:
    return StackTotal("block", 0, return_pcs, count, 10)


def test_sums_of_equal_stacks_and_labels_are_added_up() -> None:
    totals = [
        (total(1, 7, count=2.5), ()),
        (total(1, 8, count=2.5), ()),
        (total(1, 7), ANNA),
        (total(1, CUT, count=3), ()),
        (total(2, NO_EVENT), ()),
        (total(3, count=0.2), ()),
    ]
    samples, cut, _, failure, _ = wait_samples(cast("StackTranslator", Translator()), totals)
    assert [(s.locations, s.values, s.labels) for s in samples] == [
        ((place(1),), (8, 30), ()),
        ((place(1),), (1, 10), ANNA),
        ((place(3),), (1, 10), ()),
    ]
    assert (cut, failure) == (3, None)


def test_stacks_without_names_are_kept_and_reported() -> None:
    totals = [(total(1, CORRUPT), ()), (total(1, CORRUPT), ()), (total(1), ())]
    samples, _, _, failure, _ = wait_samples(cast("StackTranslator", Translator()), totals)
    assert [(len(s.locations), s.values) for s in samples] == [(2, (2, 20)), (1, (1, 10))]
    assert isinstance(failure, GoTableError)
