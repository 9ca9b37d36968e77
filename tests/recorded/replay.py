"""Runs commands in this process on saved recordings and images, where time is made up.

What stands for the kernel and for processes is replaced here, and nowhere else: all of the command
from its arguments to its output is the real code.
"""

from __future__ import annotations

import io
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final
from unittest import mock

import ebpfprof
import ebpfprof.__main__ as entry
from ebpfprof.commands import doctor_process, results
from ebpfprof.commands import list as list_verb
from ebpfprof.commands.list import Load
from ebpfprof.console import output_file
from ebpfprof.discovery import processes
from ebpfprof.discovery.processes import GoProcess, Survey
from ebpfprof.goruntime import open_processes
from ebpfprof.goruntime.samples.sampling_thread import SampledTarget
from ebpfprof.overhead.busy import ProcessorTime
from ebpfprof.privileges import checks
from ebpfprof.process import file_opener, process
from ebpfprof.process.file_opener import FileOpener
from ebpfprof.process.process import Target, TargetEnd
from ebpfprof.profile.losses import Loss, losses_in_all
from ebpfprof.profilers.account import RecordingAccount
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.report_builder import Report
from ebpfprof.recording import drop_privileges, live
from ebpfprof.recording import session as session_module
from ebpfprof.recording.session import Session
from ebpfprof.system import open_files, pid_namespace
from ebpfprof.system.closing import Closing
from tests.images.target import NO_PID, SavedTarget, Shown
from tests.recorded import pipeline
from tests.recorded.recordings import RECORDINGS
from tests.recorded.saved import Saved

_SECOND_NS: Final = 1_000_000_000
_BEGIN_NS: Final = 1_000_000 * _SECOND_NS
_BEGIN_UNIX_NS: Final = 1_795_766_400 * _SECOND_NS  # 2026-11-27 08:00:00 UTC
_TICK_NS: Final = 10_000_000
_LOAD: Final = Load(0.25, 12 << 20, 7)


@dataclass(frozen=True)
class Shows:
    """A process that a command finds: with what was recorded of it, or only as it is."""

    shown: Shown
    recording: str = ""


def recorded(name: str) -> Shows:
    """The process of a recording."""
    return Shows(RECORDINGS[name].program.shown(), name)


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code. A terminal gets all of it on `stdout`."""

    code: int
    stdout: bytes
    stderr: bytes


def run(
    command: str | Sequence[str],
    *there: Shows,
    folder: Path,
    terminal: tuple[int, int] | None = None,
    prepare: Callable[[Path], None] | None = None,
) -> Ran:
    """Run a command, such as "attach {} -d 5s", where there are these processes.

    Each {} stands for the pid of one of them. A sequence of words has none. `terminal` has the
    columns and lines of the terminal that shows the output; None for pipes. It runs in `folder`,
    after `prepare` was called with it.
    """
    pids = [NO_PID + number for number in range(len(there))]
    words = command.format(*pids).split() if isinstance(command, str) else [*command]
    printed = io.BytesIO(), io.BytesIO()
    out = _Stream(printed[0], is_terminal=terminal is not None)
    err = _Stream(printed[0 if terminal else 1], is_terminal=terminal is not None)
    with ExitStack() as held:
        held.enter_context(_machine(dict(zip(pids, there, strict=True))))
        size = os.terminal_size(terminal or (0, 0))
        written = held.enter_context(tempfile.TemporaryFile())
        for patch in (
            mock.patch.object(os, "get_terminal_size", return_value=size),
            mock.patch.object(output_file, "STDOUT_FD", written.fileno()),
            mock.patch.dict(os.environ, {"TERM": "dumb", "PAGER": "cat", "TZ": "UTC"}),
            mock.patch.multiple(
                sys,
                stdout=out,
                stderr=err,
                argv=["ebpfprof", *words],
            ),
        ):
            held.enter_context(patch)
        held.enter_context(_within(folder))
        if prepare:
            prepare(folder)
        code = entry._run()
        out.flush()
        err.flush()
        written.seek(0)
        printed[0].write(written.read())
    return Ran(int(code), *(each.getvalue() for each in printed))


class _Stream(io.TextIOWrapper):
    """A terminal or a pipe that keeps what is written."""

    def __init__(self, kept: io.BytesIO, *, is_terminal: bool) -> None:
        super().__init__(kept, encoding="utf-8", newline="")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        """What is kept stays."""


@contextmanager
def _within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _machine(there: dict[int, Shows]) -> Iterator[None]:
    """A machine with these processes, on which everything is allowed and time stands still."""
    clock, thread = _Clock(), _SamplingThread()

    def open_target(pid: int, _: FileOpener | None = None) -> Target:
        return SavedTarget(there[pid].shown, pid)

    def open_session(pids: Sequence[int], options: Options, *, has_slices: bool = False) -> Closing:
        if any(there[pid].recording for pid in pids):
            return _RecordedSession({pid: there[pid] for pid in pids}, options)
        return _ReadSession(pids, options, clock, thread)

    def nothing(*_: object, **__: object) -> None: ...

    patches = (
        mock.patch.multiple(session_module, Session=open_session),
        mock.patch.multiple(checks, require_capabilities=nothing, missing_capabilities=list),
        mock.patch.multiple(open_files, allow_many=nothing),
        mock.patch.multiple(pid_namespace, sees_whole_machine=lambda: True),
        mock.patch.multiple(process, require_process=nothing),
        mock.patch.multiple(file_opener, WorkerFileOpener=_Files),
        mock.patch.multiple(doctor_process, WorkerFileOpener=_Files),
        mock.patch.multiple(live, WorkerFileOpener=_Files, SamplingThread=lambda: thread),
        mock.patch.multiple(
            results, own_cost=lambda: "5.9 s of CPU time, 90 MiB of memory at most"
        ),
        mock.patch.multiple(ebpfprof, __version__="VERSION"),
        mock.patch.multiple(ProcessorTime, taken=lambda *_: None),
        mock.patch.multiple(processes, ProcessTable=lambda: _ProcessTable(there)),
        mock.patch.multiple(list_verb, loads_of=lambda shown: {each.pid: _LOAD for each in shown}),
        mock.patch.multiple(open_processes, Target=open_target),
        mock.patch.multiple(
            drop_privileges,
            give_up_before_recording=nothing,
            give_up_recording_rights=nothing,
            give_up_probing=nothing,
        ),
        mock.patch.multiple(time, **clock.functions()),
    )
    with ExitStack() as held:
        for patch in patches:
            held.enter_context(patch)
        held.callback(random.setstate, random.getstate())
        random.seed(1)  # the times of samples are random
        yield


class _Files(FileOpener, Closing):
    """Stands for WorkerFileOpener."""

    def close(self) -> None: ...


class _Clock:
    """Time that only passes while somebody sleeps."""

    def __init__(self) -> None:
        self.gone_ns = 0

    def sleep(self, seconds: float) -> None:
        self.gone_ns += round(seconds * _SECOND_NS)

    def monotonic_ns(self) -> int:
        return _BEGIN_NS + self.gone_ns

    def time_ns(self) -> int:
        return _BEGIN_UNIX_NS + self.gone_ns

    def functions(self) -> dict[str, Any]:
        """What stands for those of the module `time`."""
        clock_gettime_ns, localtime = time.clock_gettime_ns, time.gmtime

        def gettime_ns(clock: int) -> int:
            if clock == time.CLOCK_REALTIME:
                return self.time_ns()
            is_steady = clock in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)
            return self.monotonic_ns() if is_steady else clock_gettime_ns(clock)

        return {
            "sleep": self.sleep,
            "monotonic_ns": self.monotonic_ns,
            "monotonic": lambda: self.monotonic_ns() / _SECOND_NS,
            "time_ns": self.time_ns,
            "time": lambda: self.time_ns() / _SECOND_NS,
            "clock_gettime_ns": gettime_ns,
            "clock_gettime": lambda clock: gettime_ns(clock) / _SECOND_NS,
            "localtime": lambda at=None: localtime(
                self.time_ns() / _SECOND_NS if at is None else at
            ),
        }


class _ProcessTable(Closing):
    """Stands for ProcessTable."""

    def __init__(self, there: dict[int, Shows]) -> None:
        self._there = there

    def survey(self) -> Survey:
        return Survey(tuple(_row(pid, each.shown) for pid, each in self._there.items()), 0)

    def close(self) -> None: ...


def _row(pid: int, shown: Shown) -> GoProcess:
    name = shown.name.rpartition("/")[2]
    return GoProcess(
        pid=pid,
        name=name,
        command=f"{shown.name} -config {name}.toml",
        user="www",
        go_version="go1.27.3",
        build_mode="exe",
        container=None,
        supported=True,
        why_not="",
        executable=shown.name,
    )


class _RecordedSession(Closing):
    """Stands for Session: its reports are those of saved recordings."""

    def __init__(self, there: dict[int, Shows], options: Options) -> None:
        self._options = options
        self._held = ExitStack()
        self._replays = [
            self._held.enter_context(pipeline.opened(each.shown, Saved.load(each.recording), pid))
            for pid, each in there.items()
        ]
        self._losses: tuple[Loss, ...] = ()

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(each.target for each in self._replays)

    def files(self, _: Target) -> tuple[str, ...]:
        added = [kind.name for kind in self._options.recorded_kinds if kind.enabled_by]
        return (*self._options.kinds, *added)

    def start(self) -> None: ...

    def wait(self, _seconds: float, _should_stop: object) -> None: ...

    def finish(self) -> list[Report]:
        reports = [each.report(self._options) for each in self._replays]
        accounts = [report.profiles[0].account for report in reports]
        lost = (each.losses for each in accounts if isinstance(each, RecordingAccount))
        self._losses = losses_in_all(tuple(chain(*lost)))
        return reports

    def losses(self) -> Sequence[Loss]:
        return self._losses

    def early_endings(self) -> list[TargetEnd]:
        return []

    def failures(self) -> list[Exception]:
        return []

    assumptions = refusals = tracers = unprobed = early_endings

    def close(self) -> None:
        self._held.close()


class _SamplingThread:
    """Stands for SamplingThread: samples on request."""

    share = 0.02

    def __init__(self) -> None:
        self.joined: list[SampledTarget] = []

    def join(self, turns: SampledTarget) -> None:
        self.joined.append(turns)

    def leave(self, turns: SampledTarget) -> None:
        self.joined.remove(turns)

    def sample(self) -> None:
        for each in self.joined:
            each.sample()


class _ReadSession(Session):
    """A session that reads memory only, of processes that stand still."""

    def __init__(
        self, pids: Sequence[int], options: Options, clock: _Clock, thread: _SamplingThread
    ) -> None:
        super().__init__(pids, options)
        self._clock, self._samples = clock, thread

    def wait(self, duration_s: float, _: object) -> None:
        for _tick in range(round(duration_s * _SECOND_NS / _TICK_NS)):
            self._clock.gone_ns += _TICK_NS
            self._samples.sample()
            self._live.poll()
