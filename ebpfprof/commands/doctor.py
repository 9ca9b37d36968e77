"""`ebpfprof doctor`: what is missing for profiling here, or what is wrong with a process."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from ebpfprof.commands.parameter_types import Duration
from ebpfprof.commands.recording_options import ALLOW_UNKNOWN_GO_OPTION
from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.verb import Verb
from ebpfprof.console.columns import GAP, Column, Line, aligned
from ebpfprof.console.text import printable

if TYPE_CHECKING:
    from ebpfprof.commands.doctor_checks import Check

_APART_S = 3.0
_MIN_APART_S = 0.1
_MAX_APART_S = 3600.0
_COLORS = {"ok": "green", "warn": "yellow", "missing": "red"}
_WIDEST = 100
_MIN_ROOM = 20
_STATE = len("missing")


@click.command("doctor", cls=Verb)
@target_options(required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs to read.")
@click.option(
    "--apart",
    "apart_s",
    type=Duration(_MIN_APART_S, _MAX_APART_S),
    metavar="TIME",
    help=f"The time between the first look at a process and the last.  [default: {_APART_S:g}s]",
)
@ALLOW_UNKNOWN_GO_OPTION
def command(pids: list[int], as_json: bool, apart_s: float | None, allow_unknown_go: bool) -> int:
    """Tell what this machine lacks, or what is stuck in a process: deadlocks, lost wakes.

    Without a process it tries out what recording needs of the kernel, on the smallest scale, and
    looks at BCC, rights and limits. The exit code is 0 if everything needed is there, else the one
    that a recording would end with (10 the kernel, 11 BCC, 4 rights, 13 a refused probe, 1 anything
    else; of several the first of these). ebpfprof can do without what is marked "warn".

    With processes it looks at their goroutines for some seconds, without a probe, a stop or BPF. It
    tells of deadlocks of locks, of locks that are free and have waiters, of programs in which
    everything is asleep, of goroutines that stood still in a lock, and of those that can never go
    on: with their stacks, and whether that is certain or likely. The exit code is 14 if any of the
    first three was found, in any of the processes.

    \b
    Examples:
      sudo ebpfprof doctor
      sudo ebpfprof doctor --pid 1234
      sudo ebpfprof doctor --name shop --json | jq '.processes[].findings[] | select(.certain)'
      sudo ebpfprof doctor --json | jq -r '.checks[] | select(.level != "ok") | .remedy'
    """
    if pids:
        from ebpfprof.commands.doctor_process import examine_processes
        from ebpfprof.recording.drop_privileges import give_up_before_looking

        give_up_before_looking()
        return examine_processes(
            pids,
            apart_s=_APART_S if apart_s is None else apart_s,
            as_json=as_json,
            allow_unknown_go=allow_unknown_go,
        )
    if apart_s is not None or allow_unknown_go:
        raise click.UsageError("--apart and --allow-unknown-go are for processes: say which.")
    from ebpfprof.commands.doctor_checks import examine, exit_code
    from ebpfprof.console.terminal import has_color, is_terminal, say, width

    if not as_json and is_terminal(sys.stderr):
        say("Checking this machine ...", err=True)
    checks = list(examine())
    code = exit_code(checks)
    if as_json:
        rows = [
            {
                "name": check.name,
                "level": check.level,
                "found": check.found,
                "meaning": check.meaning,
                "remedy": check.remedy,
                "exit_code": int(check.code),
            }
            for check in checks
        ]
        say(json.dumps({"exit_code": int(code), "checks": rows}, indent=2))
    else:
        table = render(checks, width(sys.stdout), color=has_color(sys.stdout))
        say(f"{table}\n{_verdict(checks)}")
    return int(code)


def render(checks: Sequence[Check], width: int | None, *, color: bool) -> str:
    """What was found; below all that is not "ok", what that means and how to fix it."""
    names = max(len(check.name) for check in checks)
    room = max((width or _WIDEST) - _STATE - GAP - names - GAP, _MIN_ROOM)
    rows = []
    for check in checks:
        # A BPF verifier's or a compiler's words may take lines.
        more = [check.meaning, *check.remedy.splitlines()] if check.remedy else []
        lines = [printable(check.found)]
        for text in map(printable, more):
            lines += wrap(text, room, break_long_words=False, break_on_hyphens=False)
        state = Line(check.level, _COLORS[check.level])
        rows.append([[state], [Line(check.name)], list(map(Line, lines))])
    return aligned([Column("", least=_STATE), Column(""), Column("")], rows, color=color)


def _verdict(checks: Sequence[Check]) -> str:
    missing = [check.name for check in checks if check.level == "missing"]
    if missing:
        return f"Profiles can't be recorded here. Missing: {', '.join(missing)}."
    warned = sum(check.level == "warn" for check in checks)
    rest = f" ebpfprof can do without what is marked warn ({warned})." if warned else ""
    return f"Everything that is needed is there.{rest}"
