"""All profilers of a session: what is done with each of them, in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ebpfprof.kernel.losses import Loss, losses_together
from ebpfprof.overhead.cost import Runs
from ebpfprof.profilers.profiler import OpenedProcess, Profiler, RecordedData, Rights

if TYPE_CHECKING:
    from ebpfprof.profilers.options import Options

_TICK_S = 0.1


def rights_for(options: Options) -> Rights:
    """For what the kernel wants CAP_SYS_ADMIN, of all that the options ask for."""
    found = [_module(name).rights(options) for name in _modules(options)]
    return Rights(any(each.to_attach for each in found), any(each.to_record for each in found))


class ProfilerData(NamedTuple):
    """What one profiler has found of a process."""

    profiler: Profiler
    found: RecordedData


class ProfilerSet:
    """The profilers that record what the options ask for."""

    def __init__(self, targets: int, options: Options) -> None:
        """Begin to compile, for up to so many processes. Raises what profilers do."""
        self._kinds: dict[Profiler, set[str]] = {}
        self._of_number: dict[int, list[Profiler]] = {}
        with ExitStack() as held:
            for name, names in _modules(options).items():
                profiler: Profiler = _module(name).open_profiler(targets, options)
                held.callback(profiler.close)
                self._kinds[profiler] = names
            self._held = held.pop_all()

    def load(self, goroutines: int) -> None:
        """Make the maps and load the programs; `goroutines` is how many there are, 0: unknown."""
        for profiler in self._kinds:
            profiler.load(goroutines)

    def open(self, number: int, opened: OpenedProcess, names: Iterable[str]) -> None:
        """Make a process number `number`, of which these kinds are recorded."""
        wanted = set(names)
        found = [profiler for profiler, kinds in self._kinds.items() if kinds & wanted]
        for profiler in found:
            profiler.open(number, opened)
        self._of_number[number] = found

    def start(self, number: int) -> int:
        """Record a process from now on: when the first profiler began (CLOCK_MONOTONIC, ns).

        Raises what Profiler.start does.
        """
        return min([profiler.start(number) for profiler in self._of_number[number]])

    def stop(self, number: int) -> None:
        """Record a process no more; the last profiler that began is the first to stop."""
        for profiler in reversed(self._of_number.get(number, ())):
            profiler.stop(number)

    def end(self, numbers: Sequence[int]) -> None:
        """End the recording of all processes at once; of these, what must be is read before."""
        for number in numbers:
            for profiler in self._of_number[number]:
                profiler.note_end(number)
        for profiler in self._kinds:
            profiler.end()

    def detach(self) -> None:
        """Remove all probes and samplers; sums stay readable."""
        for profiler in reversed(self._kinds):
            profiler.detach()

    def forget(self, number: int) -> None:
        """Forget all of a process that is not recorded."""
        for profiler in self._of_number.pop(number, ()):
            profiler.forget(number)

    def poll(self) -> None:
        """Do what must be done every `tick_s` while processes are recorded."""
        for profiler in self._kinds:
            profiler.poll()

    @property
    def tick_s(self) -> float:
        """How soon the next poll() is wanted, in seconds."""
        return min((profiler.tick_s for profiler in self._kinds), default=_TICK_S)

    @property
    def hit_ns(self) -> float | None:
        """What it costs a thread to pass a probe, in ns; None if there are none, or not known."""
        return next((each.hit_ns for each in self._kinds if each.hit_ns is not None), None)

    def runs(self, number: int) -> tuple[Runs, Runs]:
        """How often our programs ran for the processes of a number: by probe hits, by samples."""
        found = [profiler.runs(number) for profiler in self._kinds]
        hits, samples = (sum(column, Runs()) for column in zip(*found, strict=True))
        return hits, samples

    def ns_of_others(self, number: int, own: Profiler) -> float:
        """What all profilers but one took of the CPU time of the processes of a number, in ns."""
        others = [profiler.runs(number) for profiler in self._kinds if profiler is not own]
        return sum(runs.ns for both in others for runs in both)

    def losses(self) -> tuple[Loss, ...]:
        """What was lost so far, all processes together."""
        return losses_together(*(profiler.losses() for profiler in self._kinds))

    def failures(self) -> list[Exception]:
        """Why something is missing of what was recorded."""
        return [failure for profiler in self._kinds for failure in profiler.failures()]

    def snapshot(self, number: int, *, settled: bool) -> list[ProfilerData]:
        """The sums of a process since its first start, of profilers that keep some."""
        found = ((each, each.snapshot(number, settled=settled)) for each in self._of_number[number])
        return [ProfilerData(profiler, sums) for profiler, sums in found if sums is not None]

    def begin(self, number: int) -> dict[Profiler, Any]:
        """Marks of now, of the profilers that keep no sums: what read() takes."""
        marks = ((each, each.begin(number)) for each in self._of_number[number])
        return {profiler: mark for profiler, mark in marks if mark is not None}

    def read(self, number: int, marks: dict[Profiler, Any], *, restart: bool) -> list[ProfilerData]:
        """What has come since the marks; they are of now if `restart`."""
        return [
            ProfilerData(profiler, profiler.read(number, mark, restart=restart))
            for profiler, mark in marks.items()
        ]

    def close(self) -> None:
        """Remove what is left in the kernel. May be called twice."""
        self._held.close()


def _module(name: str) -> Any:  # noqa: ANN401 - its functions are those that profiler.py names
    return import_module(name)


def _modules(options: Options) -> dict[str, set[str]]:
    """The modules that record, each with the names of its kinds that are wanted."""
    found: dict[str, set[str]] = {}
    for kind in options.recorded_kinds:
        found.setdefault(kind.profiler, set()).add(kind.name)
    return found
