"""`ebpfprof list`: the running Go processes, and whether they can be profiled."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import click

from ebpfprof.commands.shared_options import json_option
from ebpfprof.commands.target_options import keep_libraries_to_one_thread, name_option
from ebpfprof.commands.verb import Verb
from ebpfprof.console.columns import GAP, Line, TextColumn, aligned, beginning, cells_of
from ebpfprof.console.text import listed, printable, quantity

if TYPE_CHECKING:
    from ebpfprof.discovery.processes import GoProcess, Survey
    from ebpfprof.profile.kind import ProfileKind

_MAX_COMMAND = 512
_MIN_COMMAND = 16
_MAX_NAME = 24
_MAX_USER = 16
_MAX_CONTAINER = 20
_NUMBERS = ("PID", "CPU", "Memory", "Goroutines")
_MOST_READING_S = 3.0  # for all processes together
_ALL, _NONE = "all", "none"
_COLORS = {_ALL: "green", _NONE: "red"}
_COLOR_OF_SOME = "yellow"


@click.command("list", cls=Verb)
@json_option()
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help="Also show programs in other languages, which can have some of the profiles.",
)
@name_option(
    help="Only processes whose command or executable matches NAME (shell patterns allowed); may be "
    "repeated."
)
def command(as_json: bool, show_all: bool, names: list[str]) -> None:
    """List the Go processes here, and whether they can be profiled.

    CPU is the share of one processor over half a second, Memory the resident set. Goroutines
    excludes the runtime's own; "-" if it can't be read. Without root, it lists only your own
    processes, and reports the number of the others.

    \b
    Examples:
      ebpfprof list
      sudo ebpfprof list --name 'api-*'
      sudo ebpfprof list --json | jq '.processes[] | select(.supported) | .pid'
    """
    keep_libraries_to_one_thread()
    from ebpfprof.console.terminal import has_color, say, width
    from ebpfprof.discovery.processes import survey_once
    from ebpfprof.privileges.checks import missing_capabilities
    from ebpfprof.recording.drop_privileges import give_up_recording_rights
    from ebpfprof.system.pid_namespace import sees_whole_machine

    missing = missing_capabilities()  # before dropping what listing does not need
    give_up_recording_rights()
    survey = survey_once()
    shown = chosen(survey, names, show_all=show_all)
    load = loads_of(shown)
    if as_json:
        say(to_json(survey, shown, load))
    elif shown:
        table = render(shown, width(sys.stdout), color=has_color(sys.stdout), load=load)
        say(table + "".join(f"{note}\n" for note in notes(shown)), end="", wraps=True)
    else:
        say(nothing(names, show_all))
    for sentence in notices(survey, missing, sees_all=sees_whole_machine()):
        say(f"ebpfprof: {sentence}", err=True)


def chosen(survey: Survey, names: Sequence[str], *, show_all: bool) -> list[GoProcess]:
    """The processes to show: Go programs, or all, that match one of the names; not this one."""
    from ebpfprof.discovery.processes import has_name

    return [
        process
        for process in (survey.processes if show_all else survey.go)
        if process.pid != os.getpid() and (not names or has_name(process, names))
    ]


def to_json(survey: Survey, shown: Sequence[GoProcess], load: Mapping[int, Load]) -> str:
    """All fields of the processes, and what could not be read."""
    rows = [{**asdict(process), **asdict(load.get(process.pid, UNKNOWN_LOAD))} for process in shown]
    fields = {"processes": rows, "unseen": survey.unseen, "unanswered": survey.unanswered}
    return json.dumps(fields, indent=2)


def notices(survey: Survey, missing: Sequence[str], *, sees_all: bool) -> Iterator[str]:
    """Sentences about processes that the list can't have.

    `missing` are the capabilities that we lacked at the start; `sees_all`: see sees_whole_machine.
    """
    from ebpfprof.discovery.processes import not_answered, not_seen

    if survey.unanswered:
        yield not_answered(survey.unanswered)
    if survey.unseen:
        yield not_seen(survey.unseen, missing)
    if not sees_all:
        yield (
            "Only the processes of this container are visible. Run ebpfprof on the host, or start "
            "the container with --pid=host."
        )


@dataclass(frozen=True, slots=True)
class Load:
    """The resources of a process, None if unknown.

    `cpu` is a share of one processor, `memory_bytes` the resident set, `goroutines` their number.
    """

    cpu: float | None = None
    memory_bytes: int | None = None
    goroutines: int | None = None


UNKNOWN_LOAD: Final = Load()


def loads_of(processes: Sequence[GoProcess]) -> dict[int, Load]:
    """The resources that processes use now, by pid, without those that have ended."""
    from ebpfprof.discovery.usage import UsageMeter

    if not processes:
        return {}
    meter = UsageMeter(process.pid for process in processes)
    goroutines = goroutine_counts(processes)
    return {
        pid: Load(usage.cpu, usage.memory_bytes, goroutines.get(pid))
        for pid, usage in meter.finish().items()
    }


def goroutine_counts(processes: Sequence[GoProcess]) -> dict[int, int]:
    """The number of goroutines by pid, if it can be read within _MOST_READING_S in total."""
    from ebpfprof.errors import EbpfprofError
    from ebpfprof.goruntime.open_processes import OpenProcesses
    from ebpfprof.server.goroutines import count
    from symbolizer import SymbolizerError

    opening, counts = OpenProcesses(), {}
    until_s = time.monotonic() + _MOST_READING_S
    for process in processes:
        if not process.supported or time.monotonic() > until_s:
            continue
        # Without rights, or it has ended.
        with suppress(EbpfprofError, SymbolizerError), opening.open(process.pid) as opened:
            counts[process.pid] = count(opened)
    return counts


def render(
    processes: Sequence[GoProcess],
    width: int | None,
    *,
    color: bool,
    load: Mapping[int, Load] | None = None,
) -> str:
    """The table, cut to `width` columns; None: without a limit. `load` is by pid.

    If that leaves too little room for commands, columns are omitted, and then the commands; never
    the pids and the names.
    """
    loads = [(load or {}).get(process.pid, UNKNOWN_LOAD) for process in processes]
    texts = {
        "PID": [str(process.pid) for process in processes],
        "Name": [_cut(printable(process.name), _MAX_NAME) for process in processes],
        "CPU": list(map(_cpu, loads)),
        "Memory": list(map(_memory, loads)),
        "Goroutines": list(map(_goroutines, loads)),
        "User": [process.user[:_MAX_USER] for process in processes],
        "Go": [_version(process) for process in processes],
        "Build": [process.build_mode for process in processes],
        "Container": [_container(process) for process in processes],
        "Profiles": [_supported(process) for process in processes],
    }
    texts = {name: list(map(printable, cells)) for name, cells in texts.items() if any(cells)}
    room = _MAX_COMMAND
    for name in ("", "Container", "Build", "User", "Go", "Memory", "Goroutines", "CPU"):
        texts.pop(name, None)
        if width is not None:
            taken = (max(map(cells_of, (name, *cells))) for name, cells in texts.items())
            room = min(_MAX_COMMAND, width - sum(taken) - GAP * len(texts))
        if room >= _MIN_COMMAND:
            break
    if room >= _MIN_COMMAND:
        commands = (printable(process.command or f"[{process.name}]") for process in processes)
        texts["Command"] = [_cut(command, room) for command in commands]
    columns = [TextColumn(name, name in _NUMBERS) for name in texts]
    rows = [
        [
            [Line(text, _COLORS.get(text, _COLOR_OF_SOME) if name == "Profiles" else "")]
            for name, text in zip(texts, row, strict=True)
        ]
        for row in zip(*texts.values(), strict=True)
    ]
    return aligned(columns, rows, color=color)


def _cut(text: str, room: int) -> str:
    """The beginning of `text`, in `room` columns of a terminal."""
    return beginning(text[:_MAX_COMMAND], room)


def _cpu(load: Load) -> str:
    return "-" if load.cpu is None else f"{100 * load.cpu:.0f}%"


def _memory(load: Load) -> str:
    return "-" if load.memory_bytes is None else quantity(load.memory_bytes, "bytes", 2)


def _goroutines(load: Load) -> str:
    return "-" if load.goroutines is None else str(load.goroutines)


def _version(process: GoProcess) -> str:
    if not process.is_go:
        return "-"
    return (process.go_version or "?").removeprefix("go")


def _container(process: GoProcess) -> str:
    from ebpfprof.discovery.containers import SHORT_ID

    container = process.container or ""
    if len(container) <= _MAX_CONTAINER:
        return container
    return container[:SHORT_ID]


def _supported(process: GoProcess) -> str:
    """The profiles that a process can have."""
    if process.supported:
        return _ALL
    is_any = not process.is_go or process.is_unknown_version
    some = [] if not is_any else [kind.name for kind in _kinds_of_any_program()]
    return ",".join(some) or _NONE


def _kinds_of_any_program() -> tuple[ProfileKind, ...]:
    from ebpfprof.profilers.registry import kinds_of_any_program

    return kinds_of_any_program()


def notes(processes: Sequence[GoProcess]) -> list[str]:
    """Sentences why some processes can't have all profiles, each reason once."""
    pids: dict[str, list[int]] = {}
    for process in processes:
        if process.is_go and not process.supported:
            pids.setdefault(process.why_not, []).append(process.pid)
    notes = [f"{', '.join(map(str, those))}: {printable(why)}." for why, those in pids.items()]
    if any(process.is_go and process.is_unknown_version for process in processes):
        names = ",".join(kind.name for kind in _kinds_of_any_program())
        notes.append(
            f"--profile {names} records a program of any version; --allow-unknown-go reads a newer "
            "version than the known ones like the newest known one."
        )
    if any(not process.is_go for process in processes):
        titles = [kind.title for kind in _kinds_of_any_program()]
        profiles = f"{listed(titles)} {'profile' if len(titles) == 1 else 'profiles'}"
        notes.append(
            f"Other programs can only have the {profiles}: select them with --pid or --name."
        )
    return ["", *notes] if notes else []


def nothing(names: Sequence[str], show_all: bool) -> str:
    """A sentence in place of an empty list."""
    called = f" called {' or '.join(map(printable, names))}" if names else ""
    return f"There is no {'' if show_all else 'Go '}process{called} here."
