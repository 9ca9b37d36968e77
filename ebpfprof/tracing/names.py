"""Names for a timeline: the calls of its stacks, the functions of goroutines."""

from __future__ import annotations

from dataclasses import replace
from itertools import dropwhile
from typing import TYPE_CHECKING, Final

from ebpfprof.kernel.kallsyms import KernelSymbols
from ebpfprof.profile.model import Frame
from ebpfprof.profilers.cpu.cpu_names import CpuTranslator
from ebpfprof.profilers.cpu.sample_table import CpuStack
from ebpfprof.profilers.cpu.unwinder import Ending
from ebpfprof.timeline.model import KERNEL_FILE, StackCall, TimelineGoroutine
from ebpfprof.timeline.steps import StepKind, TraceStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ebpfprof.goruntime.goroutines.frames import PhysicalFrame, StackFrames
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.mappings import MappedObjects
    from ebpfprof.timeline.events import Known


_KERNEL: Final = 1 << 63
_SCHEDULES: Final = ("__schedule", "schedule")  # kernel/sched/core.c
_REPORTING: Final = "runtime/trace."
_ENDS_TASK: Final = "runtime/trace.(*Task).End"
# Steps whose stack is that of the goroutine itself.
_OWN_STACKS: Final = (StepKind.IS, StepKind.BLOCK, StepKind.STOP, StepKind.SYSCALL)


class TraceNames:
    """Looks up the names of one program, each once. Its methods raise GoTableError."""

    def __init__(self, go: GoTarget, frames: StackFrames, objects: MappedObjects | None) -> None:
        """`objects` are mapped in a program that calls C; None for one that doesn't."""
        self._frames = frames
        begin = go.binary.text_start + go.load_bias
        self._go_text = range(begin, go.binary.text_end + go.load_bias)
        self._of_c = CpuTranslator(objects, go) if objects else None
        self._starts: dict[int, StackCall | None] = {}

    def stacks(
        self, stacks: Mapping[int, tuple[int, ...]], wanted: Iterable[int]
    ) -> dict[int, tuple[StackCall, ...]]:
        """The calls of the wanted stacks, by key, innermost first."""
        chosen = {key: self._parted(stacks[key]) for key in wanted if key in stacks}
        self._frames.look_up(pc for *_, pcs in chosen.values() for pc in pcs)
        return {
            key: (
                *_kernel_calls(kernel),
                *self._c_calls(of_c),
                *(_call(frame) for frame in self._frames.physical(pcs)),
            )
            for key, (kernel, of_c, pcs) in chosen.items()
        }

    def annotation_stacks(
        self, steps: Iterable[TraceStep], stacks: Mapping[int, tuple[StackCall, ...]]
    ) -> dict[int, tuple[StackCall, ...]]:
        """The stacks of annotations as Go's tracer has them: without its own functions on top.

        Task.End stays (runtime/traceruntime.go, trace_userTaskEnd, which skips one frame less).
        """
        keys = {step.stack for step in steps if step.kind.is_annotation}
        return {key: tuple(_without_reporting(stacks[key])) for key in keys if key in stacks}

    def goroutines(
        self,
        known: Iterable[Known],
        steps: Iterable[TraceStep],
        stacks: Mapping[int, tuple[StackCall, ...]],
    ) -> dict[int, TimelineGoroutine]:
        """All goroutines of a sample, and those that the steps create."""
        goroutines = {}
        for goroutine in known:
            start = self._start(goroutine.start_pc)
            created = self._frames.creator(goroutine.created_pc)
            goroutines[goroutine.goid] = TimelineGoroutine(
                goroutine.goid,
                start,
                created,
                goroutine.parent,
                self._is_system(goroutine.start_pc),
            )
        for step in steps:
            if step.kind is StepKind.CREATE:
                calls = stacks.get(step.stack, ())
                created = next(
                    (call.frame for call in calls if call.frame.function != "runtime.newproc"), None
                )
                goroutines[step.goid] = TimelineGoroutine(
                    step.goid,
                    self._start(step.other),
                    created,
                    step.by,
                    self._is_system(step.other),
                )
        self._name_others(goroutines, steps, stacks)
        return goroutines

    def _parted(
        self, pcs: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The addresses in the kernel, which are the inner ones, those in C, and those in Go."""
        depth = sum(pc >= _KERNEL for pc in pcs)
        if not depth or not self._of_c:
            return pcs[:depth], (), pcs[depth:]
        to = next((n for n in range(depth, len(pcs)) if pcs[n] - 1 in self._go_text), len(pcs))
        return pcs[:depth], pcs[depth:to], pcs[to:]

    def _c_calls(self, pcs: tuple[int, ...]) -> Iterator[StackCall]:
        if not pcs or not self._of_c:
            return
        stack = CpuStack((), pcs, Ending.WHOLE)
        (sample,) = self._of_c.samples({stack: 1}, 1, {stack: ()}, None)
        for location in sample.locations:
            for frame in location.frames:
                yield StackCall(location.address, frame, location.address)

    def _name_others(
        self,
        goroutines: dict[int, TimelineGoroutine],
        steps: Iterable[TraceStep],
        stacks: Mapping[int, tuple[StackCall, ...]],
    ) -> None:
        """Goroutines without a begin event are named by the outermost call of their first stack."""
        for step in steps:
            named = goroutines.get(step.goid)
            calls = stacks.get(step.stack, ()) if step.kind in _OWN_STACKS else ()
            if calls and (named is None or named.start is None):
                before = named or TimelineGoroutine(step.goid, None, None, 0)
                goroutines[step.goid] = replace(before, start=calls[-1])

    def _start(self, pc: int) -> StackCall | None:
        if pc not in self._starts:
            start = self._frames.wrapped(pc) if pc else 0
            calls = self._frames.physical((start,)) if pc else []
            self._starts[pc] = StackCall(start, calls[-1].frame, start) if calls else None
        return self._starts[pc]

    def _is_system(self, start_pc: int) -> bool:
        return bool(start_pc) and self._frames.is_system(start_pc, (), "")


def _without_reporting(calls: tuple[StackCall, ...]) -> Iterator[StackCall]:
    return dropwhile(
        lambda call: (
            call.frame.function.startswith(_REPORTING) and call.frame.function != _ENDS_TASK
        ),
        calls,
    )


def _call(of: PhysicalFrame) -> StackCall:
    return StackCall(of.address, of.frame, of.pc)


def _kernel_calls(pcs: tuple[int, ...]) -> Iterator[StackCall]:
    """The kernel's functions in which a thread sleeps, without those of its scheduler."""
    if not pcs:
        return
    symbols = KernelSymbols.shared()
    calls = [(pc, symbols.at(pc)) for pc in pcs]
    inner = [
        number for number, (_, frame) in enumerate(calls) if frame and frame.name in _SCHEDULES
    ]
    for pc, symbol in calls[max(inner, default=-1) + 1 :]:
        name = symbol.name if symbol else "[kernel]"
        if symbol and symbol.module:
            name = f"{name} [{symbol.module}]"
        yield StackCall(pc, Frame(name, KERNEL_FILE, 0), pc)
