"""What `ebpfprof explain --wait-for-trouble` keeps of a process that is in trouble."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.output_file import OutputFile, default_name
from ebpfprof.console.output_folder import OutputFolder, invoking_user
from ebpfprof.console.text import listed, printable
from ebpfprof.errors import EbpfprofError, FaultFound, OutputError
from ebpfprof.export import formats
from ebpfprof.export.tables import explanation, goroutines
from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.process.file_opener import WorkerFileOpener
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from ebpfprof.settings.recording import MAX_OVERHEAD
from ebpfprof.system.signals import interruptible
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from ebpfprof.tracing.timelines import timeline_of

if TYPE_CHECKING:
    from ebpfprof.commands.seconds_before import SecondsBefore
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.rules import Explanation
    from ebpfprof.goruntime.open_processes import OpenOptions
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.system.signals import Signals
    from ebpfprof.timeline.model import Timeline

_KINDS: Final = ("block", "mutex", "cpu")
_PROFILES_S: Final = 10.0
_TRACE_S: Final = 5.0
TRACE_OVERHEAD: Final = 5.0
"""Percent, as `trace` has it."""
_BEFORE: Final = "before.html"
_APART_S: Final = 1.0
_WIDTH: Final = 80


def evidence_options(opening: OpenOptions) -> Options:
    """The options of the profiles that are kept."""
    return Options(
        _KINDS,
        max_overhead=MAX_OVERHEAD.default,
        allow_unknown_go=opening.allow_unknown_go,
        runtime=opening.runtime,
    )


class KeptEvidence:
    """A folder with the explanation, a dump, traces and profiles of a process in trouble.

    What can't be recorded is reported, and does not affect the rest.
    """

    def __init__(
        self, folder: Path | None, options: Options, before: SecondsBefore | None = None
    ) -> None:
        """Without `folder` it is NAME-PID-DATE-TIME here. Raises OutputError if it can't be made.

        It is made once there is something to keep. `before` has the seconds before the trouble.
        """
        self._folder = folder
        self._options = options
        self._before = before
        self.files: list[str] = []
        self.problems: list[str] = []
        """What is not kept, and why, in sentences."""
        if folder is not None:
            _require_free(folder)

    @property
    def announcement(self) -> str:
        """A line to print before it is kept."""
        return f"Keeping evidence: recording for {_TRACE_S + _PROFILES_S:g} s; Ctrl-C shortens it"

    def keep(self, evidence: Evidence, words: Explanation, signals: Signals) -> None:
        """Record and write all of it. A signal ends recordings early. Raises OutputError."""
        program = evidence.program
        timelines: list[Timeline] = []
        if before := self._before:  # first of all: these seconds pass
            timeline = partial(before.timeline, program.pid)
            self._try(_BEFORE, lambda: timelines.append(interruptible(timeline)))
            interruptible(before.close)  # two traces at once would cost twice as much
        if self._folder is None:
            when = time.localtime()
            self._folder = Path(default_name(program.name, program.pid, "", when, "").rstrip("."))
        _make(self._folder)
        text = explanation.render(evidence, words, _WIDTH, color=False, is_long=True)
        self._write("explanation.txt", text.encode())
        row = explanation.as_json(evidence, words)
        document = explanation.document(FaultFound.exit_code, [row])
        self._write("explanation.json", f"{document}\n".encode())
        for timeline_before in timelines:
            self._write_timeline(_BEFORE, timeline_before)
        self._try("goroutines.txt", lambda: self._dump(program.pid))
        self._try("trace.html", lambda: self._trace(program.pid, signals))
        self._try(listed(_KINDS), lambda: self._record(program.pid, signals))

    def render(self) -> str:
        """What was kept, as lines."""
        kept = f"Kept in {printable(str(self._folder))}/: {', '.join(self.files)}"
        return "\n".join([kept, *self.problems])

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {"folder": str(self._folder), "files": self.files, "problems": self.problems}

    def _try(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except OutputError:
            raise
        except (EbpfprofError, OSError) as error:
            self.problems.append(f"Not kept: {what}: {printable(str(error))}")

    def _dump(self, pid: int) -> None:
        with ExitStack() as held:
            dumper = GoroutineDumper(self._opened(pid, held))
            dump = interruptible(lambda: dumper.dump(apart_s=_APART_S))
        text = goroutines.render(dump, each_alone=False, width=None, color=False)
        self._write("goroutines.txt", text.encode())

    def _trace(self, pid: int, signals: Signals) -> None:
        with ExitStack() as held:
            go = self._opened(pid, held)
            options = TraceOptions(max_overhead=TRACE_OVERHEAD)
            recorder = held.enter_context(TraceRecorder(go, options))
            recorder.load()
            recorder.start()
            recorder.record(_TRACE_S, lambda _: signals.came)
            recorder.stop()
            timeline = interruptible(lambda: timeline_of(recorder.recorded()))
        self._write_timeline("trace.html", timeline)

    def _write_timeline(self, name: str, timeline: Timeline) -> None:
        encode = formats.FORMATS["html"].encode_timeline
        self._write(name, interruptible(lambda: encode(timeline)))

    def _opened(self, pid: int, held: ExitStack) -> GoTarget:
        files = held.enter_context(WorkerFileOpener())
        processes = OpenProcesses(files, self._options.opening)
        return held.enter_context(processes.open(pid)).go()

    def _record(self, pid: int, signals: Signals) -> None:
        with Session([pid], self._options) as session:
            session.start()
            session.wait(_PROFILES_S, lambda _: signals.came)
            (report,) = session.finish()
        for profile in report.profiles:
            data = formats.encode(profile, "pprof", hide_idle=False)
            self._write(f"{profile.kind}.pb.gz", data)

    def _write(self, name: str, data: bytes) -> None:
        assert self._folder is not None
        with OutputFile.prepare(self._folder / name, owner=invoking_user()) as file:
            file.commit(data)
        self.files.append(name)


def _require_free(folder: Path) -> None:
    shown = printable(str(folder))
    if os.path.lexists(folder):
        raise OutputError(f"{shown} is there already: choose another folder with -o.")
    if not folder.parent.is_dir():
        raise OutputError(f"{shown} can't be made: {printable(str(folder.parent))} is no folder.")


def _make(folder: Path) -> None:
    _require_free(folder)
    try:
        parent = OutputFolder.open(folder.parent)
        try:
            parent.make_private(folder.name, invoking_user()).close()
        finally:
            parent.close()
    except OSError as error:
        raise OutputError(f"{printable(str(folder))} can't be made: {error.strerror}.") from error
