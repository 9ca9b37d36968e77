"""All profilers of a session, used like one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss, losses_together
from ebpfprof.overhead.cost import Runs
from ebpfprof.profilers.profiler import OpenedProcess, Profiler, RecordedData, Rights
from ebpfprof.system.priority import run_as_others, run_promptly

if TYPE_CHECKING:
    from ebpfprof.goruntime.samples.shared_sampler import GoroutineLooks
    from ebpfprof.profilers.options import Options

_TICK_S = 0.1
_END_LEAD_NS = 500_000  # the kernel must know the end of a recording before it comes
_END_LEAD_EACH_NS = 50_000  # for each process


def rights_for(options: Options) -> Rights:
    """When the kernel requires CAP_SYS_ADMIN for what these options record."""
    found = [_module(name).rights(options) for name in _modules(options)]
    return Rights(any(each.to_attach for each in found), any(each.to_record for each in found))


class ProfilerData(NamedTuple):
    """What one profiler recorded of a process."""

    profiler: Profiler
    found: RecordedData


class ProfilerSet:
    """The profilers of the kinds that the options select."""

    def __init__(self, targets: int, options: Options) -> None:
        """Start to compile, for up to `targets` processes. Raises what profilers raise."""
        self._kinds: dict[Profiler, set[str]] = {}
        self._of_number: dict[int, list[Profiler]] = {}
        self._looks: dict[int, GoroutineLooks] = {}
        with ExitStack() as held:
            for name, names in _modules(options).items():
                profiler: Profiler = _module(name).open_profiler(targets, options)
                held.callback(profiler.close)
                self._kinds[profiler] = names
            self._held = held.pop_all()

    def load(self, goroutines: int) -> None:
        """Make the maps and load the programs, for `goroutines` goroutines; 0: unknown."""
        for profiler in self._kinds:
            profiler.load(goroutines)

    def open(self, number: int, opened: OpenedProcess, names: Iterable[str]) -> None:
        """Give an open process this number, and record these kinds of it later."""
        wanted = set(names)
        found = [profiler for profiler, kinds in self._kinds.items() if kinds & wanted]
        for profiler in found:
            profiler.open(number, opened)
        # Probes record from the moment when they are attached, so they come last. What the others
        # sampled before can be left out.
        self._of_number[number] = sorted(found, key=lambda profiler: profiler.has_probes(number))
        if opened.looks:
            self._looks[number] = opened.looks

    def start(self, number: int) -> int:
        """Start to record a process. Returns when all profilers had begun (CLOCK_MONOTONIC, ns).

        Raises what Profiler.start raises.
        """
        began_ns = max([profiler.start(number) for profiler in self._of_number[number]])
        if number in self._looks:
            self._looks[number].count_from(began_ns)
        return began_ns

    def end(self, numbers: Sequence[int], *, reads: bool = False) -> int:
        """End the recording of processes at one moment. Returns it (CLOCK_MONOTONIC, ns).

        If it `reads`, profilers first read from the processes what they must read before the end.
        What takes time after it is left to stop() or detach().
        """
        for number in numbers if reads else ():
            for profiler in self._of_number[number]:
                profiler.note_end(number)
        run_promptly()
        try:
            lead_ns = _END_LEAD_NS + _END_LEAD_EACH_NS * len(numbers)
            ended_ns = kernel_now_ns() + lead_ns
            for number in numbers:
                for profiler in reversed(self._of_number.get(number, ())):
                    profiler.end(number, ended_ns)
                if number in self._looks:
                    self._looks[number].end_at(ended_ns)
            time.sleep(max(0, ended_ns - kernel_now_ns()) / 1e9)
        finally:
            run_as_others()
        return ended_ns

    def stop(self, number: int) -> None:
        """Stop recording a process; profilers stop in the reverse order of their start."""
        for profiler in reversed(self._of_number.get(number, ())):
            profiler.stop(number)

    def detach(self) -> None:
        """Detach all probes and close all samplers; sums stay readable."""
        for profiler in reversed(self._kinds):
            profiler.detach()

    def forget(self, number: int) -> None:
        """Delete all data of a process that is not recorded."""
        self._looks.pop(number, None)
        for profiler in self._of_number.pop(number, ()):
            profiler.forget(number)

    def poll(self) -> None:
        """Do the regular work of all profilers; call it every `tick_s` during a recording."""
        for profiler in self._kinds:
            profiler.poll()

    @property
    def tick_s(self) -> float:
        """The time until the next poll(), in seconds."""
        return min((profiler.tick_s for profiler in self._kinds), default=_TICK_S)

    def has_probes(self, number: int) -> bool:
        """Whether a profiler attaches probes to the process while it records it."""
        return any(profiler.has_probes(number) for profiler in self._of_number[number])

    @property
    def hit_ns(self) -> float | None:
        """What a probe hit costs a thread, in ns; None without probes, or if unknown."""
        return next((each.hit_ns for each in self._kinds if each.hit_ns is not None), None)

    def runs(self, number: int) -> tuple[Runs, Runs]:
        """The runs of all our programs for this number: at probes, at CPU samples."""
        found = [profiler.runs(number) for profiler in self._kinds]
        hits, samples = (sum(column, Runs()) for column in zip(*found, strict=True))
        return hits, samples

    def ns_of_others(self, number: int, own: Profiler) -> float:
        """What all profilers but `own` took of the CPU time of this number's processes, in ns."""
        others = [profiler.runs(number) for profiler in self._kinds if profiler is not own]
        return sum(runs.ns for both in others for runs in both)

    def losses(self) -> tuple[Loss, ...]:
        """What the profilers lost so far of each process, by number."""
        return losses_together(
            replace(loss, kinds=loss.kinds or tuple(sorted(names)))
            for profiler, names in self._kinds.items()
            for loss in profiler.losses()
        )

    def failures(self) -> list[Exception]:
        """The errors because of which data is missing."""
        return [failure for profiler in self._kinds for failure in profiler.failures()]

    def snapshot(self, number: int, *, settled: bool) -> list[ProfilerData]:
        """The sums of a process since its first start, from the profilers that keep sums."""
        if number in self._looks:
            self._looks[number].refresh()
        found = ((each, each.snapshot(number, settled=settled)) for each in self._of_number[number])
        return [ProfilerData(profiler, sums) for profiler, sums in found if sums is not None]

    def begin(self, number: int) -> dict[Profiler, Any]:
        """Marks of this moment for read(), from the profilers that keep no sums."""
        marks = ((each, each.begin(number)) for each in self._of_number[number])
        return {profiler: mark for profiler, mark in marks if mark is not None}

    def read(self, number: int, marks: dict[Profiler, Any], *, restart: bool) -> list[ProfilerData]:
        """The samples since the marks; with `restart`, the marks become now."""
        return [
            ProfilerData(profiler, profiler.read(number, mark, restart=restart))
            for profiler, mark in marks.items()
        ]

    def close(self) -> None:
        """Free everything that is left in the kernel. May be called twice."""
        self._held.close()


def _module(name: str) -> Any:  # noqa: ANN401 - its functions are those that profiler.py names
    return import_module(name)


def _modules(options: Options) -> dict[str, set[str]]:
    """The modules that record these options, each with the names of its selected kinds."""
    found: dict[str, set[str]] = {}
    for kind in options.recorded_kinds:
        found.setdefault(kind.profiler, set()).add(kind.name)
    return found
