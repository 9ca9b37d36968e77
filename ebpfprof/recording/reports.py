"""What was recorded of a process until a moment, and the reports of the time between two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ebpfprof.profilers.recording import Recording
from ebpfprof.recording.target import LiveTarget

if TYPE_CHECKING:  # the readers of executables are imported late, while BCC compiles
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.report_builder import RecordingFacts, Report


@dataclass(eq=False, slots=True)
class ProcessSums:
    """What was recorded of a process from its first start until a moment.

    `parts` are the sums of each of its recordings. CPU samples add up from this moment on for as
    long as somebody keeps it.
    """

    target: LiveTarget
    facts: RecordingFacts
    parts: Mapping[Recording, Any]


def reported(sums: ProcessSums, since: ProcessSums | None, options: Options) -> Report:
    """The report of the time from `since` to `sums`; None: from the first start.

    Samples have no label of their handler: who shows them adds it (LiveTarget.labelled). Its name
    may change, so nothing may be subtracted or added up after that.
    """
    from ebpfprof.profilers.report_builder import ReportBuilder

    before = since.parts if since else {}
    builder = ReportBuilder(sums.facts, options, since.facts if since else None)
    for recording, part in sums.parts.items():
        recording.report(part, before.get(recording), builder)
    return builder.finished()


def live_report(sums: ProcessSums, since: ProcessSums | None, options: Options) -> Report:
    """The same of a process that is still recorded: each report repeats the warnings."""
    report = reported(sums, since, options)
    report.hints += filter(None, (sums.facts.traced, sums.facts.unprobed))
    return report
