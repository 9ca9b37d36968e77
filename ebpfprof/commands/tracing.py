"""How `ebpfprof trace` records, writes the file and shows a summary."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ebpfprof.commands.shared_options import format_for
from ebpfprof.commands.trace_tables import Asked, TraceTables
from ebpfprof.commands.until_wait import wait_conditions
from ebpfprof.console.output_file import IfTaken, OutputFile, default_name
from ebpfprof.console.output_folder import invoking_user
from ebpfprof.console.terminal import erase_progress, has_color, progress, say, width, working
from ebpfprof.console.text import duration, percent, printable
from ebpfprof.errors import to_type
from ebpfprof.export.formats import FORMATS, TIMELINES
from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.goruntime.other_code import other_code_warning
from ebpfprof.process.file_opener import WorkerFileOpener
from ebpfprof.system.signals import Signals, interruptible
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from ebpfprof.tracing.timelines import slices_sentence, timeline_of
from ebpfprof.tracing.triggers import Trigger
from ebpfprof.tracing.writer import TraceWriter, stamped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ebpfprof.commands.until_wait import UntilWait
    from ebpfprof.goruntime.open_processes import OpenOptions
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.system.requests import WriteRequests
    from ebpfprof.timeline.model import Timeline
    from ebpfprof.tracing.writer import WrittenTrace

_DEFAULT: Final = "go"
_DRAWN_EVERY_S: Final = 0.1


def warnings_of(go: GoTarget) -> list[str]:
    """Warnings to print before a process is traced, as sentences."""
    warnings = []
    if go.assumption:
        warnings.append(f"{go.assumption}; the output may be wrong.")
    if tracer := go.target.tracer():
        warnings.append(
            f"process {go.target.pid} is traced by {tracer}: a debugger's breakpoint on one of the "
            "probes can crash the process later. Remove such breakpoints first."
        )
    if warning := other_code_warning(go, has_probes=True, in_program_only=True):
        warnings.append(warning)
    return warnings


class Tracing:
    """The trace of a process."""

    def __init__(
        self,
        options: TraceOptions,
        *,
        format_name: str | None,
        is_quiet: bool,
        asked: Asked,
        until_waits: Sequence[UntilWait],
        until_goroutines: int | None,
        opening: OpenOptions,
        requests: WriteRequests,
    ) -> None:
        self._options, self._format_name, self._is_quiet = options, format_name, is_quiet
        self._asked = asked
        self._until_waits, self._until_goroutines = until_waits, until_goroutines
        self._opening = opening
        self._requests = requests
        self._drawn_s = -_DRAWN_EVERY_S

    def open(self, pid: int, output: Path | None, held: ExitStack, *, force: bool) -> None:
        """Open the process, load the program, prepare the file; `held` closes all of it.

        Raises any of ebpfprof.errors, or click.UsageError.
        """
        name = format_for(self._format_name, output, default=_DEFAULT, formats=TIMELINES)
        self._format = FORMATS[name]
        self._to_stdout = output is not None and str(output) == "-"
        with working("Reading the program ...", is_shown=not self._is_quiet):
            files = held.enter_context(WorkerFileOpener())
            processes = OpenProcesses(files, self._opening)
            go = interruptible(held.enter_context(processes.open(pid)).go)
            waits = wait_conditions(self._until_waits, go)
            self._recorder = held.enter_context(TraceRecorder(go, self._options))
            interruptible(self._recorder.load)
        for warning in warnings_of(go):
            say(f"ebpfprof: {warning}", err=True)
        if_taken: IfTaken = "number"
        if output is not None:
            if_taken = "replace" if force else "refuse"
        when = time.localtime()
        path = output or Path(
            default_name(go.target.name, pid, self._format.timeline_ending, when, "")
        )
        self._output = output
        self._file = held.enter_context(
            OutputFile.prepare(
                "-" if self._to_stdout else path,
                owner=invoking_user(),
                is_text=False,
                suffix=self._format.suffix,
                if_taken=if_taken,
            )
        )
        self._trigger = Trigger(go, waits=waits, goroutines=self._until_goroutines)
        self._writer = held.enter_context(
            TraceWriter(self._recorder, self._format.encode_timeline, suffix=self._format.suffix)
        )

    def record(self, duration_s: float, signals: Signals) -> None:
        """Record until the end, a signal or a condition. Raises AttachFailed or TargetGone."""
        recorder = self._recorder
        with working("Attaching ...", is_shown=not self._is_quiet):
            recorder.start()
        signals.end_recording_only()
        self._requests.take()  # requests from before there was anything to write
        target = recorder.go.target
        if not self._is_quiet:
            length = f" for {duration_s:g} s" if duration_s < float("inf") else ""
            kept = ""
            if self._options.last_s is not None:
                kept = f"; the last {self._options.last_s:g} s are kept"
            say(
                f"tracing process {target.pid} ({printable(target.name)}){length}{kept}; Ctrl-C "
                "ends it",
                err=True,
            )
            if kept:
                say(f"To write them now:{to_type(f'kill -USR1 {os.getpid()}')}", err=True)
        with progress(duration_s, is_shown=not self._is_quiet) as draw:
            recorder.record(
                duration_s,
                lambda gone_s: signals.came or self._is_over(gone_s, draw),
            )
        recorder.stop()
        self._report_written(self._writer.wait())
        if self._trigger.why:
            say(f"ebpfprof: {self._trigger.why}", err=True)

    def _is_over(self, gone_s: float, draw: Callable[[float], None]) -> bool:
        """Check conditions and requests to write; returns whether to end the recording."""
        if gone_s >= self._drawn_s + _DRAWN_EVERY_S or gone_s < self._drawn_s:
            self._drawn_s = gone_s
            draw(gone_s)
        self._report_written(self._writer.taken())
        if not self._writer.is_busy and self._requests.take():
            self._write_meanwhile()
        if self._trigger.warning:
            warning, self._trigger.warning = self._trigger.warning, ""
            erase_progress()
            say(f"ebpfprof: {warning}", err=True)
        return self._trigger.is_met()

    def _write_meanwhile(self) -> None:
        if self._to_stdout:
            erase_progress()
            say("ebpfprof: signals write no file if the trace goes to stdout (-o -)", err=True)
            return
        suffix, target = self._format.suffix, self._recorder.go.target
        name = default_name(
            target.name, target.pid, self._format.timeline_ending, time.localtime(), ""
        )
        self._writer.write(stamped(self._output, suffix) if self._output else Path(name))

    def _report_written(self, written: WrittenTrace | None) -> None:
        if written is None:
            return
        erase_progress()
        for comment in written.comments:
            say(f"ebpfprof: {comment}", err=True)
        if written.failure:
            say(f"ebpfprof: not written: {written.failure}", err=True)
        else:
            say(f"Written: {printable(written.name)} ({duration(written.length_ns)})")

    def write(self) -> None:
        """Write the file and show a summary.

        Raises OutputError, CorruptBinary, or the error that ended the recording.
        """
        with working("Looking up names ...", is_shown=not self._is_quiet):
            recorded = self._recorder.recorded()
            timeline = interruptible(lambda: timeline_of(recorded))
            data = interruptible(lambda: self._format.encode_timeline(timeline))
        self._file.commit(data)
        for comment in timeline.comments:
            more = ""
            # With --quiet a message has one line.
            if not self._is_quiet and comment == slices_sentence(recorded):
                everything = f"ebpfprof trace --pid {timeline.pid} --max-overhead 0"
                more = f". To record all:{to_type(everything)}"
            say(f"ebpfprof: {comment}{more}", err=True)
        if not self._is_quiet:
            say("", err=True)  # between the messages and the tables
            self._show(timeline)
        if not self._to_stdout:
            say(f"{'' if self._is_quiet else chr(10)}Written: {printable(self._file.name)}")
        if not self._is_quiet:
            if not self._to_stdout:
                name = printable(shlex.quote(self._file.name))
                say(f"Next: {self._format.opens_timeline.format(name)}")
            self._show_cost()
        if self._recorder.failure:
            raise self._recorder.failure

    def _show(self, timeline: Timeline) -> None:
        stream = sys.stderr if self._to_stdout else sys.stdout
        tables = TraceTables(timeline, width=width(stream), color=has_color(stream))
        parts = interruptible(lambda: tables.parts(self._asked))
        text = "\n".join(f"{heading}:\n{below}" for heading, below in parts)
        say(text, err=self._to_stdout, end="", wraps=False)

    def _show_cost(self) -> None:
        recorder = self._recorder
        cost_ns, cpu_ns = recorder.lost_ns(), recorder.overhead().cpu_ns
        share = f", {percent(cost_ns / cpu_ns)} of the process's CPU time" if cpu_ns else ""
        say(f"\nOverhead: {duration(cost_ns)}{share}.", err=self._to_stdout, wraps=True)
