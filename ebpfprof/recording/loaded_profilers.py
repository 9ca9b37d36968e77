"""All loaded profilers of a session, and all recordings of one process, each used like one."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Cost
from ebpfprof.profile.losses import Loss, losses_together
from ebpfprof.profilers.recording import LoadedProfiler, OpenedProcess, Recording, Rights
from ebpfprof.system.priority import run_as_others, run_promptly

if TYPE_CHECKING:
    from ebpfprof.goruntime.samples.shared_sampler import SharedSampler
    from ebpfprof.profilers.options import Options

_TICK_S = 0.1
_END_LEAD_NS = 500_000  # the kernel must know the end of a recording before it comes
_END_LEAD_EACH_NS = 50_000  # for each process


def rights_for(options: Options) -> Rights:
    """When the kernel requires CAP_SYS_ADMIN for what these options record."""
    needed = [_module(name).rights(options) for name in _modules(options)]
    return Rights(
        any(spans.to_attach for spans in needed), any(spans.to_record for spans in needed)
    )


class ProcessRecordings:
    """The recordings of one process by all profilers."""

    def __init__(self, sampler: SharedSampler | None) -> None:
        """`sampler` are the goroutine samples that they share."""
        self._sampler = sampler
        self._kinds: dict[Recording, set[str]] = {}
        self._in_order: list[Recording] = []

    def add(self, recording: Recording, kinds: set[str]) -> None:
        """Add a recording of these kinds."""
        self._kinds[recording] = kinds
        # Probes record from the moment when they are attached, so they come last. What the others
        # sampled before can be left out.
        self._in_order = sorted(self._kinds, key=lambda kind: kind.has_probes)

    def start(self) -> int:
        """Start to record. Returns when all recordings had begun (CLOCK_MONOTONIC, ns).

        Raises what Recording.start raises.
        """
        began_ns = max([recording.start() for recording in self._in_order])
        if self._sampler:
            self._sampler.count_from(began_ns)
        return began_ns

    def note_end(self) -> None:
        """Read from the process what must be read before the end."""
        for recording in self._in_order:
            recording.note_end()

    def poll(self) -> None:
        """Do the regular work of the goroutine samples, while the process is recorded."""
        if self._sampler:
            self._sampler.poll()

    def end(self, at_ns: int) -> None:
        """End all recordings at a moment from now (CLOCK_MONOTONIC); returns at once."""
        for recording in reversed(self._in_order):
            recording.end(at_ns)
        if self._sampler:
            self._sampler.end_at(at_ns)

    def stop(self) -> None:
        """Stop all recordings, in the reverse order of their start."""
        for recording in reversed(self._in_order):
            recording.stop()

    def sums(self, kinds: Collection[str] | None = None) -> dict[Recording, Any]:
        """What those recordings have until now that were started, of these kinds or all."""
        wanted = self._in_order if kinds is None else self.of_kinds(kinds)
        if self._sampler and wanted:
            self._sampler.refresh()
        read = ((profiler, profiler.sums()) for profiler in wanted)
        return {recording: sums for recording, sums in read if sums is not None}

    def of_kinds(self, kinds: Collection[str]) -> list[Recording]:
        """The recordings of these kinds."""
        return [one for one in self._in_order if not self._kinds[one].isdisjoint(kinds)]

    @property
    def has_probes(self) -> bool:
        """Whether one of them attaches probes to the process."""
        return any(recording.has_probes for recording in self._in_order)

    def cost(self) -> Cost:
        """What all of them cost the process so far."""
        return sum((recording.cost() for recording in self._in_order), Cost())

    def losses(self) -> tuple[Loss, ...]:
        """What they lost so far."""
        return losses_together(
            replace(loss, kinds=loss.kinds or tuple(sorted(kinds)), target=None)
            for recording, kinds in self._kinds.items()
            for loss in recording.losses()
        )

    def failures(self) -> list[Exception]:
        """The errors because of which data is missing."""
        return [failure for recording in self._in_order for failure in recording.failures()]

    def close(self) -> None:
        """Delete all data of the process, which is not recorded."""
        for recording in self._in_order:
            recording.close()


class LoadedProfilers:
    """The profilers of the kinds that the options select."""

    def __init__(self, targets: int, options: Options) -> None:
        """Start to compile, for up to `targets` processes. Raises what profilers raise."""
        self._kinds: dict[LoadedProfiler, set[str]] = {}
        with ExitStack() as held:
            for name, names in _modules(options).items():
                profiler: LoadedProfiler = _module(name).open_profiler(targets, options)
                held.callback(profiler.close)
                self._kinds[profiler] = names
            self._held = held.pop_all()
        self._polled_s = dict.fromkeys(self._kinds, 0.0)  # time.monotonic()

    def load(self, goroutines: int) -> None:
        """Make the maps and load the programs, for `goroutines` goroutines; 0: unknown."""
        for profiler in self._kinds:
            profiler.load(goroutines)

    def record(
        self,
        recordings: ProcessRecordings,
        opened: OpenedProcess,
        slot: int,
        names: Iterable[str],
    ) -> None:
        """Add the recordings of these kinds of a process, not started yet."""
        wanted = set(names)
        for profiler, kinds in self._kinds.items():
            if kinds & wanted:
                recordings.add(profiler.record(opened, slot), kinds)

    def poll(self) -> None:
        """Do the regular work that is due; call it every `tick_s` during a recording."""
        now_s, tick_s = time.monotonic(), self.tick_s
        for profiler, polled_s in self._polled_s.items():
            # One whose time would come before the middle of the next tick is polled now.
            if now_s + tick_s / 2 >= polled_s + profiler.tick_s:
                self._polled_s[profiler] = now_s
                profiler.poll()

    @property
    def tick_s(self) -> float:
        """The time until the next poll(), in seconds."""
        return min((profiler.tick_s for profiler in self._kinds), default=_TICK_S)

    def detach(self) -> None:
        """Detach all probes and close all samplers; sums stay readable."""
        for profiler in reversed(self._kinds):
            profiler.detach()

    def losses(self) -> tuple[Loss, ...]:
        """What they lost so far of all processes together."""
        return losses_together(
            replace(loss, kinds=loss.kinds or tuple(sorted(names)))
            for profiler, names in self._kinds.items()
            for loss in profiler.losses()
        )

    def failures(self) -> list[Exception]:
        """The errors because of which data of all processes is missing."""
        return [failure for profiler in self._kinds for failure in profiler.failures()]

    def close(self) -> None:
        """Free everything that is left in the kernel. May be called twice."""
        self._held.close()


def end_together(recordings: Sequence[ProcessRecordings]) -> int:
    """End the recording of processes at one moment. Returns it (CLOCK_MONOTONIC, ns).

    What takes time after it is left to stop() or detach().
    """
    run_promptly()
    try:
        ended_ns = kernel_now_ns() + _END_LEAD_NS + _END_LEAD_EACH_NS * len(recordings)
        for recording in recordings:
            recording.end(ended_ns)
        time.sleep(max(0, ended_ns - kernel_now_ns()) / 1e9)
    finally:
        run_as_others()
    return ended_ns


def _module(name: str) -> Any:  # noqa: ANN401 - its functions are those that recording.py names
    return import_module(name)


def _modules(options: Options) -> dict[str, set[str]]:
    """The modules that record these options, each with the names of its selected kinds."""
    modules: dict[str, set[str]] = {}
    for kind in options.recorded_kinds:
        modules.setdefault(kind.loader.module, set()).add(kind.name)
    return modules
