"""Writing what was recorded, and saying so: the end of every verb that records."""

from __future__ import annotations

import resource
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from ebpfprof.console.output_file import IfTaken, OutputFile, default_name
from ebpfprof.console.output_folder import invoking_user
from ebpfprof.console.terminal import has_color, say, width
from ebpfprof.console.text import duration, printable
from ebpfprof.process.process import Target
from ebpfprof.profile.model import Kind, Profile
from ebpfprof.system.signals import interruptible

if TYPE_CHECKING:
    from ebpfprof.profilers.report_builder import Report
    from ebpfprof.recording.session import Session

_HEADINGS = {
    "block": "Waits of {process} in {length}",
    "mutex": "Releases of locks that others waited for in {process} in {length}",
    "cpu": "CPU time of {process} in {length}",
    "open": "Goroutines of {process} that still wait after {length}",
}


@dataclass(frozen=True, slots=True)
class Writing:
    """How to write: in which format, whether idle waits are left out of what people read.

    `force` replaces a file that is there. What is said of a profile goes to stdout, unless that
    holds the profile itself, or `to_stderr`.
    """

    format: str = "pprof"
    hide_idle: bool = False
    force: bool = False
    to_stderr: bool = False

    def prepare(self, session: Session, output: Path | None, held: ExitStack) -> list[OutputFile]:
        """The files to write, in the order in which a session has them; `held` discards them.

        Raises OutputError if one can't be written.
        """
        from ebpfprof.export.formats import FORMATS

        made = FORMATS[self.format]
        if_taken: IfTaken = "number"
        paths: list[Path | Literal["-"]]
        if output is not None:
            if_taken = "replace" if self.force else "refuse"
            paths = ["-" if str(output) == "-" else output]
        else:
            when = time.localtime()
            paths = [
                Path(default_name(target.name, target.pid, kind, when, made.suffix))
                for target in session.targets
                for kind in session.files(target)
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
        """End the recording and write all that can be written, before a word is said about it.

        Adds the names of the files to `written`. Raises all errors as one group.
        """
        errors: list[Exception] = []
        reports = session.finish()
        written_to = iter(files)
        shown = [(report, [(p, next(written_to)) for p in report.profiles]) for report in reports]
        for _, profiles in shown:
            for profile, file in profiles:
                with _kept(errors):
                    self._write_one(profile, file)
                    written.append(file.name)
        errors += session.failures()
        for ending in session.endings():
            say(f"ebpfprof: {ending.text}; the profile holds what was recorded.", err=True)
        for hint in dict.fromkeys(hint for report in reports for hint in report.hints):
            say(f"ebpfprof: {hint}", err=True)
        for loss in session.losses():
            say(f"ebpfprof: incomplete: {loss}", err=True)
        for report, profiles in shown:
            for profile, file in profiles:
                with _kept(errors):
                    self._show(report.target, profile, file.name, file.name in written)
                if profile.kind == "mutex" and report.locks:
                    with _kept(errors):
                        self._show_locks(report, to_stdout=file.name == "-")
        self._show_cost(reports, to_stderr=any(file.name == "-" for file in files))
        if errors:
            raise ExceptionGroup("not everything could be written", errors)

    def _write_one(self, profile: Profile, file: OutputFile) -> None:
        from ebpfprof.export import formats

        hide_idle = self.hide_idle and self.format != "pprof"
        encode = partial(formats.encode, profile, self.format, hide_idle=hide_idle)
        file.commit(interruptible(encode))

    def _show(self, target: Target, profile: Profile, name: str, is_written: bool) -> None:
        from ebpfprof.export.tables import cpu
        from ebpfprof.export.tables import waits as summary

        to_stderr = self.to_stderr or name == "-"
        stream = self._stream(name)
        hidden = ""
        if self.hide_idle:
            from ebpfprof.profile import idle

            profile, waits = idle.split(profile)
            hidden = summary.hidden_line(waits)
        render = cpu.render if profile.kind == "cpu" else summary.render
        table = render(profile, width=width(stream), color=has_color(stream))
        heading = _HEADINGS[profile.kind].format(
            process=f"process {target.pid} ({target.name})", length=duration(profile.duration_ns)
        )
        say(f"\n{heading}:\n{table}{hidden}", err=to_stderr)
        if is_written and name != "-":
            say(f"Written: {printable(name)}", err=to_stderr)
            if self.format == "pprof":
                say(f"Next: go tool pprof -http=: {printable(shlex.quote(name))}", err=to_stderr)

    def _show_locks(self, report: Report, *, to_stdout: bool) -> None:
        from ebpfprof.export.tables import locks

        stream = self._stream("-" if to_stdout else "")
        table = locks.render(report.locks, width=width(stream), color=has_color(stream))
        target = report.target
        heading = f"\nLocks of process {target.pid} ({target.name})"
        say(f"{heading}:\n{table}", err=stream is sys.stderr, end="")

    def _show_cost(self, reports: Sequence[Report], *, to_stderr: bool) -> None:
        from ebpfprof.overhead.cost import own_cost

        lines = []
        for each in reports:
            lines.append(f"Process {each.target.pid} lost {each.cost}.")
            if each.watched and each.watched.windows:
                lines.append(f"Process {each.target.pid} was {each.watched} 0 takes every wait.")
                lines += [
                    f"{profile.kind.capitalize()} profile: {each.watched.error(profile.kind)}."
                    for profile in each.profiles
                    if each.watched.error(profile.kind)
                ]
        text = "\n".join(["", *lines, f"ebpfprof itself took {own_cost()}."])
        say(text, err=self.to_stderr or to_stderr)

    def _stream(self, name: str) -> TextIO:
        return sys.stderr if self.to_stderr or name == "-" else sys.stdout


@contextmanager
def _kept(errors: list[Exception]) -> Iterator[None]:
    """Put an exception into `errors` instead of raising it."""
    try:
        yield
    except Exception as error:
        errors.append(error)


def recording_line(targets: Sequence[Target], kinds: Sequence[Kind], duration_s: float) -> str:
    """What is said once all probes are in place; `duration_s` may be infinite."""
    who = ", ".join(f"{target.pid} ({target.name})" for target in targets)
    noun = "process" if len(targets) == 1 else "processes"
    *others, last = kinds
    named = f"{', '.join(others)} and {last}" if others else last
    profiles = named + (" profile" if len(kinds) == 1 else " profiles")
    length = f" for {duration_s:g} s" if duration_s < float("inf") else ""
    return f"recording {profiles} of {noun} {who}{length}; Ctrl-C ends it"


def say_what_is_assumed(session: Session) -> None:
    """Say what may be wrong, and what was asked for and can't be had."""
    for assumption in session.assumptions():
        say(f"ebpfprof: {assumption}; what it shows may be wrong.", err=True)
    for refusal in session.refusals():
        say(f"ebpfprof: {refusal}.", err=True)
    for warning in session.tracers():
        say(f"ebpfprof: {warning}", err=True)


def allow_many_files() -> None:
    """Raise the soft limit of open files, also for the helper: a perf event's probe takes two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
