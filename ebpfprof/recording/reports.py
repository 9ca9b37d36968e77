"""Turns what profilers recorded of a process into a report, with names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Overhead
from ebpfprof.profilers.profiler import Profiler
from ebpfprof.recording.profiler_set import ProfilerData
from ebpfprof.recording.target import LiveTarget

if TYPE_CHECKING:  # the readers of executables are imported late, while BCC compiles
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.report_builder import Recording, Report


@dataclass(eq=False, slots=True)
class IntervalStart:
    """The moment from which samples of a process add up; LiveSession.begin makes it.

    It holds the Unix time, and what had accumulated by then: the recorded time, the cost to the
    process, and the losses.
    """

    marks: dict[Profiler, Any]
    unix_ns: int
    recorded_ns: int
    overhead: Overhead
    losses: tuple[Loss, ...]


def reported(
    target: LiveTarget, recording: Recording, found: Sequence[ProfilerData], options: Options
) -> Report:
    """The report with the profiles of what profilers recorded of a process."""
    from ebpfprof.profilers.report_builder import ReportBuilder

    builder = ReportBuilder(recording, options)
    for each in found:
        each.profiler.report(target.number, each.found, builder)
    return builder.finished()


def live_report(
    target: LiveTarget, recording: Recording, found: Sequence[ProfilerData], options: Options
) -> Report:
    """The same of a process that goes on being recorded: each report repeats the warnings."""
    report = reported(target, recording, found, options)
    if recording.traced:
        report.hints.append(recording.traced)
    if recording.unprobed:
        report.hints.append(recording.unprobed)
    return report
