"""The visible Go processes of this machine, and those that a user's options select.

CPU time and memory come from psutil (ebpfprof.discovery.usage). Everything else is read from /proc
here. psutil gives no executable for a program whose first thread has ended, extends names from the
command line, which is the process's own word, and does not mark kernel threads. It also reads
/proc/PID/stat twice per process: on a machine with 2,000 processes, one survey takes 0.44 s of
CPU time with psutil 7.2 and 0.35 s without.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ebpfprof.console.terminal import say
from ebpfprof.console.text import printable
from ebpfprof.discovery.containers import SHORT_ID, container_of
from ebpfprof.errors import NoSuchProcess, to_type
from ebpfprof.privileges.checks import missing_capabilities, no_proc, way_out
from ebpfprof.system.bounded_file import read_bounded
from ebpfprof.system.channel import Frame
from ebpfprof.system.closing import Closing
from ebpfprof.system.file_worker import PATIENCE_S, FileTask, FileWorker, NoAnswerError
from ebpfprof.system.first_thread import reading_pid
from ebpfprof.system.heap import give_back_large_blocks

if TYPE_CHECKING:  # the worker that reads executables imports it
    from ebpfprof.discovery.executables import Executable

_PF_KTHREAD = 0x0020_0000  # include/linux/sched.h
_MAX_BYTES = 1 << 16
_DELETED = " (deleted)"
_MAX_NAMED = 4
_EFFECTIVE_UID = re.compile(rb"^Uid:\t\d+\t(\d+)", re.MULTILINE)


LIST: Final = "ebpfprof list"
"""The command that lists processes."""


@dataclass(frozen=True, slots=True)
class GoProcess:
    """A process, usually of a Go program.

    `name` is the kernel's (at most 15 bytes), `executable` the file's path in the process's root,
    `command` the command line. `user` is the effective user, as a number if it has no name here.
    `go_version` is None if the program hides it. `build_mode`, `module` and `module_version`: see
    Executable. `container` and `pod`: see Container. `started_ns` is the start time
    (CLOCK_BOOTTIME), 0 if unknown. `why_not` is why it is not `supported`; with
    `is_unknown_version` it can have the profiles that any program can have. All text comes from
    the process: it may contain any characters, but is valid UTF-8.
    """

    pid: int
    name: str
    command: str
    user: str
    go_version: str | None
    build_mode: str
    container: str | None
    supported: bool
    why_not: str
    pod: str | None = None
    executable: str = ""
    is_go: bool = True
    is_unknown_version: bool = False
    module: str = ""
    module_version: str = ""
    started_ns: int = 0


@dataclass(frozen=True, slots=True)
class Survey:
    """All processes that run a program, by pid.

    `unseen` is the number of processes that we may not read. `unanswered` are the pids of processes
    whose executable is on a file system that does not respond. `too_young` is the number of
    processes that started too recently to be examined.
    """

    processes: tuple[GoProcess, ...]
    unseen: int
    unanswered: tuple[int, ...] = ()
    too_young: int = 0

    @property
    def go(self) -> list[GoProcess]:
        """The Go programs among them."""
        return [process for process in self.processes if process.is_go]


def not_answered(pids: Iterable[int]) -> str:
    """A sentence about processes whose files can't be read; "" without any."""
    named = [f"{pid} ({printable(_name(pid))})" for pid in pids]
    if not named:
        return ""
    those = ", ".join(named[:_MAX_NAMED]) + (", ..." if len(named) > _MAX_NAMED else "")
    what = f"process {those}" if len(named) == 1 else f"{len(named)} processes ({those})"
    return (
        f"{what} did not respond within {PATIENCE_S:g} s and {'is' if len(named) == 1 else 'are'} "
        "omitted: the executable is on a file system that does not respond (NFS, FUSE?)."
    )


def not_seen(number: int, missing: Sequence[str] | None = None) -> str:
    """Sentences about the number of processes that could not be read, and what to do.

    `missing` are the capabilities that we lacked at the start; None: those that we lack now.
    """
    what = f"{number} {'process' if number == 1 else 'processes'} could not be read"
    if not (missing_capabilities() if missing is None else missing):
        return f"{what}: the kernel refused it even to this user."
    of = "it belongs to another user" if number == 1 else "they belong to other users"
    return f"{what}: {of}. {way_out()}"


_Life = tuple[int, str]
"""A pid, and the start time of the process in ticks, as in /proc/PID/stat."""


class _Seen(NamedTuple):
    """The file worker's result for a process, and its time (CLOCK_MONOTONIC)."""

    at_s: float
    process: GoProcess | None
    is_unseen: bool


class ProcessTable(Closing):
    """Finds processes; later surveys read only new executables.

    A file worker reads them, since reading a file may hang. It is forked, so create the table
    before any thread starts. A context manager.
    """

    def __init__(self, describe: Callable[[], FileTask] | None = None) -> None:
        """`describe` makes the worker's side; a test has another one, which is in a module."""
        self._worker = FileWorker(describe or _DescribeTask)
        self._unanswered: set[_Life] = set()
        self._known: dict[_Life, _Seen] = {}

    def survey(self, *, least_age_s: float = 0.0, fresh_s: float = 0.0) -> Survey:
        """The current processes. Those that start or end meanwhile may be missing.

        Processes younger than `least_age_s` are only counted. Results that are younger than
        `fresh_s` are used again. A process whose file does not respond is omitted until it does.
        Raises KernelUnsupported if /proc is not mounted.
        """
        self._unanswered -= {(pid, started) for pid, started in self._worker.answered_late()}
        lives = [(pid, _started(pid)) for pid in _pids()]
        born_before_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - least_age_s * 1e9
        old = [life for life in lives if not least_age_s or _started_ns(life[1]) <= born_before_ns]
        self._unanswered &= set(lives)
        now_s = time.monotonic()
        kept = self._known if fresh_s else {}
        known = {life: kept[life] for life in old if life in kept}
        asked = [
            life
            for life in old
            if life not in self._unanswered
            and not (life in known and now_s - known[life].at_s < fresh_s)
        ]
        for life, answer in zip(asked, self._worker.ask_all(asked), strict=True):
            if isinstance(answer, NoAnswerError):
                self._unanswered.add(life)
                known.pop(life, None)
            else:
                known[life] = _Seen(now_s, *_as_seen(life, answer))
        self._known = known if fresh_s else {}
        processes = (known[life].process for life in old if life in known)
        return Survey(
            tuple(process for process in processes if process),
            sum(seen.is_unseen for seen in known.values()),
            tuple(sorted(pid for pid, _ in self._unanswered)),
            len(lives) - len(old),
        )

    def close(self) -> None:
        """End the worker; abandon it if it hangs."""
        self._worker.close()


def _as_seen(life: _Life, answer: Frame | OSError) -> tuple[GoProcess | None, bool]:
    """The process in an answer, and whether it is one that we may not read."""
    if isinstance(answer, OSError):  # else it has ended, is a zombie or a kernel thread
        return None, isinstance(answer, PermissionError) and not _is_kernel_thread(life[0])
    return GoProcess(**answer.message, started_ns=_started_ns(life[1])), False


def survey_once() -> Survey:
    """The current processes; see ProcessTable.survey."""
    with ProcessTable() as table:
        return table.survey()


def started_ns(pid: int) -> int:
    """When a process started, CLOCK_BOOTTIME; 0 if it has ended."""
    return _started_ns(_started(pid))


def _started_ns(ticks: str) -> int:
    """When a process started, CLOCK_BOOTTIME; 0 if it has ended."""
    return int(ticks) * (1_000_000_000 // os.sysconf("SC_CLK_TCK")) if ticks else 0


class _DescribeTask:
    """The file worker's side of a survey."""

    def __init__(self) -> None:
        from ebpfprof.discovery.executables import Executables

        give_back_large_blocks()  # those of each file's tables
        self._executables = Executables()

    def begin(self) -> None:
        """Begin a survey."""
        self._executables.begin_survey()

    def answer(self, request: Any, fds: Sequence[int]) -> Frame:  # noqa: ANN401 - JSON
        """A GoProcess as a dict. Raises OSError if there is no such process, or we may not."""
        pid, _started = request
        described = asdict(_described(pid, self._executables.of(pid)))
        del described["started_ns"]  # the table has it
        return Frame(described)


def find(
    pids: Sequence[int],
    names: Sequence[str],
    containers: Sequence[str],
    all_go: bool,
    survey_of_all: Callable[[], Survey] = survey_once,
) -> list[int]:
    """The pids that the user selects: `pids`, and those of matching processes.

    A process matches if its command or the base name of its executable is one of the `names` or
    matches one as a shell pattern, and if it runs in one of the `containers` (prefixes of ids).
    Either may be empty. `all_go` selects all supported Go processes. ebpfprof and its children
    never match. Raises NoSuchProcess if there is no match.
    """
    selected = list(pids)
    if names or containers or all_go:
        survey = survey_of_all()
        if survey.unanswered:
            say(f"ebpfprof: {not_answered(survey.unanswered)}", err=True)
        selected += [process.pid for process in _best(survey, names, containers, all_go)]
    return list(dict.fromkeys(selected))


def _best(
    survey: Survey, names: Sequence[str], containers: Sequence[str], all_go: bool
) -> list[GoProcess]:
    """The matches: supported ones if there are any, else Go programs, else all with the names.

    So a service is selected, not the shell script that started it; and if no match is supported,
    recording fails with the reason.
    """
    ids = {id for prefix in containers if (id := _the_container(survey, prefix))}
    matching = [
        process
        for process in survey.processes
        if (not names or has_name(process, names))
        and (not containers or process.container in ids)
        and not _is_ours(process.pid)
    ]
    choices = [[process for process in matching if process.supported]]
    if not all_go:
        choices.append([process for process in matching if process.is_go])
    if names:
        choices.append(matching)
    best = next(filter(None, choices), None)
    if best is None:
        raise NoSuchProcess(_nothing(survey, names, containers))
    return best


def has_name(process: GoProcess, patterns: Iterable[str]) -> bool:
    """Whether the command or the base name of the executable matches one of the patterns."""
    own = (process.name, os.path.basename(process.executable))
    return any(name and (name == p or fnmatchcase(name, p)) for p in patterns for name in own)


def _the_container(survey: Survey, prefix: str) -> str | None:
    """The id that is `prefix`, or the only one that begins with it; None without one.

    Raises NoSuchProcess if several begin with it.
    """
    ids = sorted({process.container for process in survey.processes if process.container})
    matching = [prefix] if prefix in ids else [id for id in ids if id.startswith(prefix)]
    if len(matching) > 1:
        named = ", ".join(id[: max(SHORT_ID, len(prefix) + 4)] for id in matching[:_MAX_NAMED])
        raise NoSuchProcess(
            f"Several container ids begin with {prefix}: {named}. Give more characters."
        )
    return matching[0] if matching else None


def _nothing(survey: Survey, names: Sequence[str], containers: Sequence[str]) -> str:
    called = f" called {' or '.join(names)}" if names else ""
    where = f" in a container whose id begins with {' or '.join(containers)}" if containers else ""
    kind = "process" if names else "Go process that can be profiled"
    hidden = f" {not_seen(survey.unseen)}" if survey.unseen else ""
    text = f"There is no {kind}{called}{where}.{hidden}"
    if "\n" in hidden:  # it ends with a command to try
        return text
    return f"{text} To list the Go processes here, or all:" + to_type(LIST, f"{LIST} --all")


def _is_ours(pid: int) -> bool:
    return descends(pid, os.getpid(), _parent)


def descends(pid: int, ancestor: int, parent_of: Callable[[int], int]) -> bool:
    """Whether process `pid` is `ancestor` or descends from it; `parent_of` gives 0 for none.

    Parents are read one after the other, and pids are reused: they may form a cycle.
    """
    seen = set[int]()
    while pid > 0 and pid not in seen:
        if pid == ancestor:
            return True
        seen.add(pid)
        pid = parent_of(pid)
    return False


def _parent(pid: int) -> int:
    fields = _stat_fields(pid)
    return int(fields[1]) if fields else 0


def _pids() -> list[int]:
    """The pids of all visible processes, ascending. Raises KernelUnsupported."""
    try:
        os.stat("/proc/self")
        names = os.listdir("/proc")
    except OSError as error:
        raise no_proc(error) from error
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def _described(pid: int, executable: Executable) -> GoProcess:
    """A process as /proc shows it. Raises OSError if it has ended."""
    folder, program = f"/proc/{pid}/", f"/proc/{reading_pid(pid)}/"
    container = container_of(_text(_read(folder + "cgroup")))
    uid = _EFFECTIVE_UID.search(_read(folder + "status"))
    path = _text(os.fsencode(os.readlink(program + "exe")))
    return GoProcess(
        pid=pid,
        name=_name(pid),
        command=_text(_read(program + "cmdline").rstrip(b"\0").replace(b"\0", b" ")),
        user=_user(int(uid[1])) if uid else "",
        go_version=executable.go_version,
        build_mode=executable.build_mode,
        container=container.id if container else None,
        supported=executable.is_go and not executable.why_not,
        why_not=executable.why_not,
        pod=container.pod if container else None,
        executable=path.removesuffix(_DELETED),
        is_go=executable.is_go,
        is_unknown_version=executable.is_unknown_version,
        module=executable.module,
        module_version=executable.module_version,
    )


def _is_kernel_thread(pid: int) -> bool:
    fields = _stat_fields(pid)
    return not fields or has_kernel_flag(fields)


def has_kernel_flag(fields: Sequence[bytes]) -> bool:
    """Whether these fields of /proc/PID/stat, from the state on, are of a kernel thread."""
    return bool(int(fields[6]) & _PF_KTHREAD)


def _started(pid: int) -> str:
    """The start time, which identifies a process together with its pid; "" if it has ended."""
    fields = _stat_fields(pid)
    return b"".join(fields[19:20]).decode()


def _name(pid: int) -> str:
    try:
        return _text(_read(f"/proc/{pid}/comm")).removesuffix("\n")
    except OSError:
        return "ended"


def _stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; none if it has ended."""
    try:
        return fields_of_stat(_read(f"/proc/{pid}/stat"))
    except OSError:
        return []


def fields_of_stat(text: bytes) -> list[bytes]:
    """The fields behind the name, which may have any characters, from the state on."""
    return text.rpartition(b")")[2].split()


@cache
def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _read(path: str) -> bytes:
    return read_bounded(path, _MAX_BYTES)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
