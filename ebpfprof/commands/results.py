"""Writes and shows the result of a recording, for verbs that write profiles."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from ebpfprof.commands import short_form
from ebpfprof.commands.source_option import texts_of
from ebpfprof.console.output_file import IfTaken, OutputFile, default_name, named_for
from ebpfprof.console.output_folder import invoking_user
from ebpfprof.console.terminal import has_color, height, say, width, working
from ebpfprof.console.text import duration, listed, printable
from ebpfprof.errors import to_type
from ebpfprof.export.tables.quantities import PLUS_MINUS
from ebpfprof.overhead.busy import ProcessorTime
from ebpfprof.overhead.cost import own_cost, own_cpu_s
from ebpfprof.process.process import Target
from ebpfprof.profile.model import Lock, Profile
from ebpfprof.profilers.account import loss_lines
from ebpfprof.profilers.registry import kind_named, kind_with_option
from ebpfprof.system.signals import interruptible

if TYPE_CHECKING:
    from ebpfprof.process.source_files import SourceFiles
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.report_builder import Report
    from ebpfprof.recording.session import Session


@dataclass(frozen=True, slots=True)
class Writing:
    """How to write profiles.

    `hide_idle` is as chosen; for None, see formats.hides_idle. `force` replaces existing files. If
    it `is_quiet`, there are no tables and no overhead. Unless it `is_long`, the output for one
    process fits the height of a terminal. HTML files have lines of `sources`. `began` is the
    processors' time when the command began. Tables and messages go to stdout, unless the profile
    itself does; with `to_stderr` to stderr.
    """

    format: str = "pprof"
    hide_idle: bool | None = None
    force: bool = False
    to_stderr: bool = False
    is_quiet: bool = False
    is_long: bool = False
    sources: SourceFiles | None = None
    began: ProcessorTime = field(default_factory=ProcessorTime.now)

    def prepare(self, session: Session, output: Path | None, held: ExitStack) -> list[OutputFile]:
        """The files to write, in the order of session.files(); `held` discards those unwritten.

        Raises OutputError if one can't be written.
        """
        from ebpfprof.export.formats import FORMATS

        made = FORMATS[self.format]
        if_taken: IfTaken = "number"
        paths: list[Path | Literal["-"]]
        parts = [(target, kind) for target in session.targets for kind in session.files(target)]
        if output is None:
            when = time.localtime()
            paths = [
                Path(default_name(target.name, target.pid, kind, when, made.suffix))
                for target, kind in parts
            ]
        else:
            if_taken = "replace" if self.force else "refuse"
            if len(parts) == 1:
                paths = ["-" if str(output) == "-" else output]
            else:
                has_pid = len(session.targets) > 1
                paths = [
                    named_for(
                        output,
                        f"{target.pid}.{kind}" if has_pid else kind,
                        made.suffix,
                        made.endings,
                    )
                    for target, kind in parts
                ]
        prepare = partial(
            OutputFile.prepare,
            owner=invoking_user(),
            is_text=made.is_text,
            suffix=made.suffix,
            if_taken=if_taken,
        )
        return [held.enter_context(prepare(path)) for path in paths]

    def write(self, session: Session, files: Sequence[OutputFile], written: list[str]) -> None:
        """End the recording, write everything that can be written, and then report it.

        Adds the names of the files to `written`. Raises all errors as one group.
        """
        errors: list[Exception] = []
        with working("Looking up names ...", is_shown=not self.is_quiet):
            reports = session.finish()
        written_to = iter(files)
        shown = [(report, [(p, next(written_to)) for p in report.profiles]) for report in reports]
        for report, profiles in shown:
            for profile, file in profiles:
                has_locks = profile.kind == kind_with_option("by_lock").name
                with _kept(errors):
                    self._write_one(profile, file, report.locks if has_locks else ())
                    written.append(file.name)
        failures = session.failures()
        errors += failures
        warnings = self._warnings(session, reports)
        for warning in warnings:
            say(warning, err=True)
        rows = self._rows(reports, written, warnings, has_failed=bool(failures))
        to_stderr = self.to_stderr or any(file.name == "-" for file in files)
        if not self.is_quiet:
            self._show_findings(reports, to_stderr=to_stderr)
        for report, profiles in () if self.is_quiet else shown:
            for profile, file in profiles:
                with _kept(errors):
                    self._show(report.target, profile, file.name, rows)
                if report.by_handler:
                    with _kept(errors):
                        self._show_handlers(report.target, profile, file.name)
                if report.locks and profile.kind == kind_with_option("by_lock").name:
                    with _kept(errors):
                        self._show_locks(report, to_stdout=file.name == "-")
        self._show_next(written, is_short=rows is not None)
        if not self.is_quiet:
            is_below_tables = self.is_long or not any(name != "-" for name in written)
            self._show_cost(
                reports,
                to_stderr=to_stderr,
                has_tables=is_below_tables,
                has_failed=bool(failures),
            )
        if errors:
            raise ExceptionGroup("not everything could be written", errors)

    def say_recording(self, session: Session, options: Options, duration_s: float) -> None:
        """Report that all probes are attached; `duration_s` may be infinite."""
        if not self.is_quiet:
            say(_recording_line(session, options, duration_s), err=True)

    def _write_one(self, profile: Profile, file: OutputFile, locks: Sequence[Lock]) -> None:
        from ebpfprof.export import formats

        hide_idle = formats.hides_idle(self.format, self.hide_idle)
        texts = texts_of(profile, self.sources) if self.sources else None
        encode = partial(
            formats.encode,
            profile,
            self.format,
            hide_idle=hide_idle,
            sources=texts,
            locks=locks,
        )
        file.commit(interruptible(encode))

    def _warnings(self, session: Session, reports: Sequence[Report]) -> list[str]:
        """Sentences about early ends, possible errors, and losses."""
        warnings = [
            f"{ending.text}; the profile has everything until then."
            for ending in session.early_endings()
        ]
        if not self.is_quiet:
            warnings += dict.fromkeys(hint for report in reports for hint in report.hints)
        profiles = [profile for report in reports for profile in report.profiles]
        completeness = [profile.account.completeness for profile in profiles if profile.account]
        warnings += loss_lines(session.losses(), completeness, is_long=self.is_long)
        return [f"ebpfprof: {warning}" for warning in warnings]

    def _rows(
        self,
        reports: Sequence[Report],
        written: Sequence[str],
        warnings: Sequence[str],
        *,
        has_failed: bool,
    ) -> int | None:
        """How many rows of each table fit; None without a limit."""
        from ebpfprof.export.tables import largest

        stream = self._stream(next(iter(written), "-"))
        lines, columns = height(stream), width(stream)
        if self.is_long or not lines or not columns or len(reports) != 1:
            return None
        if reports[0].locks or reports[0].by_handler:
            return None
        texts = [*warnings, *_findings(reports[0]), *self._next(written, is_short=True)]
        texts += short_form.cost(
            reports, own_part=self._own_part(), is_long=False, has_failed=has_failed
        )
        if self.hide_idle is not False:
            texts += [largest.hidden_line_of(profile, columns) for profile in reports[0].profiles]
        return short_form.rows_that_fit(lines, columns, texts, len(reports[0].profiles))

    def _show_findings(self, reports: Sequence[Report], *, to_stderr: bool) -> None:
        """Show the findings first: a sentence per process, or one per profile."""
        for report in reports:
            heading = [f"\nProcess {report.target.pid}:"] if len(reports) > 1 else []
            text = "\n".join([*heading, *_findings(report)]).replace("+-", PLUS_MINUS)
            say(text, err=to_stderr, wraps=True)

    def _show(self, target: Target, profile: Profile, name: str, rows: int | None) -> None:
        from ebpfprof.export.tables import largest

        to_stderr = self.to_stderr or name == "-"
        stream = self._stream(name)
        table = largest.render(
            profile,
            hide_idle=self.hide_idle is not False,
            limit=rows,
            width=width(stream),
            color=has_color(stream),
        )
        heading = kind_named(profile.kind).heading.format(
            process=f"process {target.pid} ({target.name})", length=duration(profile.duration_ns)
        )
        blank = "" if rows == 1 else "\n"  # a small terminal has no room for a blank line
        say(f"{blank}{heading}:\n{table}", err=to_stderr, end="", wraps=True)

    def _show_handlers(self, target: Target, profile: Profile, name: str) -> None:
        from ebpfprof.export.tables import handlers

        stream = self._stream(name)
        table = handlers.render(
            profile,
            hide_idle=self.hide_idle is not False,
            width=width(stream),
            color=has_color(stream),
        )
        title = kind_named(profile.kind).subject
        heading = f"\n{title} of process {target.pid} ({target.name}) by handler"
        say(f"{heading}:\n{table}", err=stream is sys.stderr, end="")

    def _show_next(self, written: Sequence[str], *, is_short: bool) -> None:
        """Print the file names, and commands to open the first file."""
        for number, text in enumerate(self._next(written, is_short=is_short)):
            blank = "" if number or self.is_quiet or is_short else "\n"
            say(blank + text, err=self.to_stderr, wraps=True)

    def _next(self, written: Sequence[str], *, is_short: bool) -> list[str]:
        """The lines of _show_next."""
        names = [name for name in written if name != "-"]
        if not names:
            return []
        shown = short_form.written(names).splitlines() if is_short else names
        lines = [f"Written: {printable(name)}" for name in shown]
        if self.format == "pprof" and not self.is_quiet:
            name = printable(shlex.quote(names[0]))
            # sudo's PATH often lacks Go, so also print a command without Go.
            commands = f"go tool pprof -http=: {name}", f"ebpfprof report {name} -o profile.html"
            if is_short:
                lines[-1] += to_type(*commands)
            else:
                lines.append(f"Next:{to_type(*commands)}")
        return lines

    def _show_locks(self, report: Report, *, to_stdout: bool) -> None:
        from ebpfprof.export.tables import locks

        stream = self._stream("-" if to_stdout else "")
        table = locks.render(report.locks, width=width(stream), color=has_color(stream))
        target = report.target
        heading = f"\nLocks of process {target.pid} ({target.name})"
        say(f"{heading}:\n{table}", err=stream is sys.stderr, end="")

    def _show_cost(
        self, reports: Sequence[Report], *, to_stderr: bool, has_tables: bool, has_failed: bool
    ) -> None:
        """Show the overhead; after a blank line if there are tables above (`has_tables`)."""
        lines = short_form.cost(
            reports, own_part=self._own_part(), is_long=self.is_long, has_failed=has_failed
        )
        if self.is_long:
            lines = [*lines, f"ebpfprof used {own_cost()}."]
        if has_tables:
            lines = ["", *lines]
        if lines:
            say("\n".join(lines), err=to_stderr, wraps=True)

    def _own_part(self) -> float | None:
        """Our share of the time of all processors (0 to 1); None if they were not busy."""
        return (ProcessorTime.now() - self.began).taken(own_cpu_s())

    def _stream(self, name: str) -> TextIO:
        return sys.stderr if self.to_stderr or name == "-" else sys.stdout


def _findings(report: Report) -> list[str]:
    """The findings in the profiles of a process, as sentences."""
    from ebpfprof.export.tables.finding import summaries

    has_locks = kind_with_option("by_lock").name
    sentences = summaries(report.profiles, report.locks, has_locks)
    if sentences and not any(profile.samples for profile in report.profiles):
        # If all goroutines hang, no wait ends and no CPU time is used.
        how = to_type(f"ebpfprof doctor --pid {report.target.pid}")
        sentences[-1] += f" To find goroutines that hang:{how}"
    return sentences


@contextmanager
def _kept(errors: list[Exception]) -> Iterator[None]:
    """Append an exception to `errors` instead of raising it."""
    try:
        yield
    except Exception as error:  # any error: the caller reports it once all files are written
        errors.append(error)


def _recording_line(session: Session, options: Options, duration_s: float) -> str:
    """The line to print once all probes are attached; `duration_s` may be infinite."""
    files = {kind for target in session.targets for kind in session.files(target)}
    kinds = [kind for kind in options.kinds if kind in files]
    profiles = " profile" if len(kinds) == 1 else ""  # the default kinds fit 80 columns without it
    processes = "process" if len(session.targets) == 1 else "processes"
    named = ", ".join(f"{target.pid} ({target.name})" for target in session.targets)
    length = f" for {duration_s:g} s" if duration_s < float("inf") else ""
    return f"recording {listed(kinds)}{profiles} of {processes} {named}{length}; Ctrl-C ends it"


def say_what_is_assumed(session: Session) -> None:
    """Report what may be wrong in the profiles, and profiles that some targets can't have."""
    for assumption in session.assumptions():
        say(f"ebpfprof: {assumption}; the output may be wrong.", err=True)
    for refusal in session.refusals():
        say(f"ebpfprof: {refusal}.", err=True)
    for warning in (*session.tracers(), *session.unprobed()):
        say(f"ebpfprof: {warning}", err=True)
