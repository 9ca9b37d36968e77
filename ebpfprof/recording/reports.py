"""What profilers have found of a process → a report, with names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Overhead
from ebpfprof.profilers.profiler import Profiler
from ebpfprof.recording.profiler_set import ProfilerData
from ebpfprof.recording.target import LiveTarget

if TYPE_CHECKING:  # what reads executables is imported late, while BCC compiles
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.report_builder import Recording, Report


@dataclass(eq=False, slots=True)
class IntervalStart:
    """A moment from which on samples of a process are added up; made by LiveSession.begin.

    It is told by Unix time, and by how long the process had been watched by then, what that had
    cost it and what had been lost.
    """

    marks: dict[Profiler, Any]
    unix_ns: int
    recorded_ns: int
    overhead: Overhead
    losses: tuple[Loss, ...]


def reported(
    target: LiveTarget, recording: Recording, found: Sequence[ProfilerData], options: Options
) -> Report:
    """The profiles of what profilers have found of a process, with names."""
    from ebpfprof.profilers.report_builder import ReportBuilder

    builder = ReportBuilder(recording, options)
    for each in found:
        each.profiler.report(target.number, each.found, builder)
    return builder.finished()


def live_report(
    target: LiveTarget, recording: Recording, found: Sequence[ProfilerData], options: Options
) -> Report:
    """The same of a process that goes on being recorded: each report warns of a debugger."""
    report = reported(target, recording, found, options)
    if recording.traced:
        report.hints.append(recording.traced)
    return report
