"""Observes some processes side by side, for the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import (
    AttachFailed,
    BccMissing,
    EbpfprofError,
    KernelUnsupported,
    NotGoProgram,
    PermissionDenied,
)
from ebpfprof.kernel.features import sampling_event
from ebpfprof.observing.observation import Observation
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from ebpfprof.system.closing import Closing

if TYPE_CHECKING:
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.goruntime.open_processes import OpenOptions, OpenProcesses
    from ebpfprof.recording.target import LiveTarget

_KINDS: Final = ("cpu", "wall")  # neither places a probe in the process
_KINDS_WITHOUT_BPF: Final = ("wall",)
_REFUSALS: Final = (KernelUnsupported, PermissionDenied, BccMissing, AttachFailed)
_HZ: Final = 50  # goroutine samples: enough for shares to within 2 %, at half the CPU time
_TICK_S: Final = 0.05
_LABELS: Final = ()


def observation_options(opening: OpenOptions, *, has_bpf: bool = True) -> Options:
    """The options of the recording that takes place meanwhile; without BPF, not of CPU time."""
    kinds = _KINDS if has_bpf else _KINDS_WITHOUT_BPF
    return Options(
        kinds,
        labels=_LABELS,
        allow_unknown_go=opening.allow_unknown_go,
        runtime=opening.runtime,
        wall_hz=_HZ,
        kernel=False,  # no rule needs functions of the kernel; to read their names takes 0.1 s
    )


def open_session(
    options: Options, capacity: int, processes: OpenProcesses | None = None
) -> tuple[LiveSession, EbpfprofError | None]:
    """A session for observers, and why it can't sample the CPU time, if the kernel refuses that.

    For `processes` see LiveSession. Raises any of ebpfprof.errors.
    """
    refusal: EbpfprofError | None = None
    if options.needs_bpf:
        try:
            sampling_event()  # that the kernel refuses it would show only at the start
            return LiveSession(options, capacity=capacity, processes=processes), None
        except _REFUSALS as error:
            refusal = error
    without = options.replace(kinds=_KINDS_WITHOUT_BPF)
    return LiveSession(without, capacity=capacity, processes=processes), refusal


def without_cpu(evidence: Evidence, refusal: EbpfprofError | None) -> Evidence:
    """The evidence, which says in a sentence why it has no CPU time if that was refused."""
    if refusal is None:
        return evidence
    first, *_ = str(refusal).splitlines()[0].split(". ")
    sentence = f"Without CPU samples: {first.rstrip('.')}."
    return replace(evidence, failures=(sentence, *evidence.failures))


class Observer(Closing):
    """Processes that are observed together, once or repeatedly.

    A context manager: leaving it closes them.
    """

    def __init__(self, live: LiveSession, pids: Sequence[int], length_s: float) -> None:
        """Open the processes in `live`, which has observation_options() and room for them.

        Raises any of ebpfprof.errors.
        """
        self._live, self._length_s = live, length_s
        self._targets: list[LiveTarget] = []
        try:
            self._observations = [self._opened(pid) for pid in pids]
        except BaseException:  # Ctrl-C too: nobody else can close those that are open
            self.close()
            raise

    def _opened(self, pid: int) -> Observation:
        target = self._live.add(pid)
        self._targets.append(target)
        go = target.recorded.go
        if go is None:
            raise NotGoProgram(f"Process {pid} ({target.name}) is not a Go program.")
        return Observation(self._live, target, go, self._length_s)

    def observe(self, should_stop: Callable[[float], bool]) -> list[Evidence | EbpfprofError]:
        """Observe all until the time is over or should_stop(), which gets the seconds so far.

        Returns what was observed of each process, or why that failed, in order. It may be called
        again.
        """
        failures: dict[Observation, EbpfprofError] = {}
        _each(self._observations, Observation.start, failures)
        began_s = time.monotonic()
        while (gone_s := time.monotonic() - began_s) < self._length_s:
            running = [one for one in self._observations if one not in failures and not one.is_over]
            if not running or should_stop(gone_s):
                break
            now_s = time.monotonic()
            _each([one for one in running if one.due_s <= now_s], Observation.sample, failures)
            due_s = min(one.due_s for one in running) - time.monotonic()
            rest_s = self._length_s - (time.monotonic() - began_s)
            # Until the next sample is due; at the latest, should_stop() is asked again.
            time.sleep(max(0.0, min(due_s, rest_s, _TICK_S)))
        results: list[Evidence | EbpfprofError] = []
        for one in self._observations:
            try:
                results.append(failures[one] if one in failures else one.finish())
            except EbpfprofError as error:
                results.append(error)
        return results

    def close(self) -> None:
        """Stop the recording and close the processes; `live` stays open."""
        for target in self._targets:
            self._live.remove(target)
        self._targets.clear()


def _each(
    observations: Sequence[Observation],
    work: Callable[[Observation], None],
    failures: dict[Observation, EbpfprofError],
) -> None:
    for one in observations:
        try:
            work(one)
        except EbpfprofError as error:
            failures[one] = error
