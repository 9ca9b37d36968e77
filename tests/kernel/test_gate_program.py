"""The program of allocations by itself: what it does with what a target makes up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ebpfprof.process.process import Target as Process
from ebpfprof.profilers.heap.gate_program import GateProgram
from ebpfprof.profilers.heap.heap_stacks import HeapStacks
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from symbolizer.codeanalysis.allocation_gates import allocation_gates
from symbolizer.errors import GoTableError
from symbolizer.x86.values import Source
from tests.builds import in_full
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.targets_run import Target


def counted(size: Source | None) -> tuple[Counter[int], dict[str, int]]:
    """The objects by size, and the losses, of gates that tell the size in that place instead."""
    with (
        Target.start(program("allocations"), env={"GOGC": "off"}) as target,
        Process(target.pid) as process,
        GateProgram(1, 1) as gates,
    ):
        go = inspect(process)
        found = allocation_gates(go.binary)
        if size:
            found = tuple(replace(each, size=size) for each in found)
        gates.open(0, go, found, None)
        gates.load()
        gates.attach(0)
        gates.record(0, is_on=True)
        target.ask("mix 50", "done")
        gates.detach_target(0)
        sizes = Counter[int]()
        for stack, count in gates.tables.counts(0).items():
            sizes[stack.size_bytes] += count
        return sizes, {loss.name: loss.count for loss in gates.losses()}


@pytest.mark.parametrize(
    "size", [*in_full(Source("", 0), Source("", (1 << 47) + 1)), Source("", 8, reads=True)]
)
def test_a_size_that_can_not_be_is_a_loss(size: Source) -> None:
    sizes, losses = counted(size)
    assert sizes == {}
    assert losses["object_size_unreadable"] >= 230  # of 50 rounds, without tiny objects


def test_sizes_are_those_of_the_slots() -> None:
    sizes, losses = counted(None)
    assert sizes[3072] == sizes[1152] == 50
    assert losses == {}


def test_stacks_that_tables_contradict_are_counted_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def contradict(_stacks: HeapStacks, _stack: tuple[int, ...]) -> tuple[int, ...]:
        raise GoTableError("pclntab contradicts itself")

    monkeypatch.setattr(HeapStacks, "shown_alike", contradict)
    options = Options(kinds=("allocs",), max_overhead=0)
    with (
        Target.start(program("allocations")) as target,
        Session([target.pid], options) as session,
    ):
        session.start()
        target.ask("turns 100", "done")
        ((allocs,),) = [report.profiles for report in session.finish()]
        assert session.failures() == []
    of_first = [s for s in allocs.samples if "main.first" in {f.function for f in s.frames}]
    assert sum(sample.values[0] for sample in of_first) == 100
