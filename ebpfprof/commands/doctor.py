"""`ebpfprof doctor`: what this machine lacks for profiling, or what is stuck in a process."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from ebpfprof.commands.reachable_leaks import leaks_option
from ebpfprof.commands.shared_options import apart_option, json_option, opening_options
from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.verb import Verb
from ebpfprof.console.columns import GAP, Line, TextColumn, aligned
from ebpfprof.console.text import printable

if TYPE_CHECKING:
    from ebpfprof.commands.doctor_checks import Check
    from ebpfprof.goruntime.open_processes import OpenOptions

_APART_S = 3.0
_COLORS = {"ok": "green", "warn": "yellow", "missing": "red"}
_WIDEST = 100
_MIN_ROOM = 20
_STATE = len("missing")


@click.command("doctor", cls=Verb)
@target_options(required=False)
@json_option()
@leaks_option
@apart_option(default_s=_APART_S)
@opening_options
def command(
    pids: list[int],
    as_json: bool,
    finds_leaks: bool,
    apart_s: float | None,
    opening: OpenOptions,
) -> int:
    """Check what this machine lacks, or what is stuck in a process: deadlocks, lost wakeups.

    Without a process it tries each kernel feature that recordings need, and checks BCC, rights and
    limits. The exit code is 0 if nothing needed is missing. Otherwise it is the exit code that a
    recording would have: 10 for the kernel, 11 for BCC, 4 for rights, 13 for a refused probe, 1 for
    anything else; the first of these, if several are missing. Checks marked "warn" are optional.

    With processes it samples their goroutines for a few seconds, without a probe, a stop or BPF. It
    reports lock deadlocks, free locks with waiters, programs in which no goroutine can run,
    goroutines that did not move in a lock, and goroutines that can never continue: with their
    stacks, and whether the finding is certain or likely. The exit code is 14 if any process has one
    of the first three.

    \b
    Examples:
      sudo ebpfprof doctor
      sudo ebpfprof doctor --pid 1234
      sudo ebpfprof doctor --pid 1234 --leaks
      sudo ebpfprof doctor --name shop --json | jq '.processes[].findings[] | select(.certain)'
      sudo ebpfprof doctor --json | jq -r '.checks[] | select(.level != "ok") | .remedy'
    """
    if pids:
        from ebpfprof.commands.doctor_process import examine_processes
        from ebpfprof.recording.drop_privileges import give_up_recording_rights

        give_up_recording_rights()
        return examine_processes(
            pids,
            apart_s=_APART_S if apart_s is None else apart_s,
            as_json=as_json,
            finds_leaks=finds_leaks,
            opening=opening,
        )
    from ebpfprof.goruntime.open_processes import OpenOptions

    if apart_s is not None or opening != OpenOptions() or finds_leaks:
        raise click.UsageError(
            "--apart, --leaks, --runtime and --allow-unknown-go need a process: add PID."
        )
    from ebpfprof.commands.doctor_checks import examine, exit_code
    from ebpfprof.console.terminal import has_color, is_terminal, say, width

    if not as_json and is_terminal(sys.stderr):
        say("Checking this machine ...", err=True)
    checks = list(examine())
    if as_json:
        say(to_json(checks))
    else:
        say(render(checks, width(sys.stdout), color=has_color(sys.stdout)) + "\n" + verdict(checks))
    return int(exit_code(checks))


def to_json(checks: Sequence[Check]) -> str:
    """All fields of the checks, and the exit code."""
    from ebpfprof.commands.doctor_checks import exit_code

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
    return json.dumps({"exit_code": int(exit_code(checks)), "checks": rows}, indent=2)


def render(checks: Sequence[Check], width: int | None, *, color: bool) -> str:
    """The checks; below each that is not "ok", what it means and how to fix it."""
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
    return aligned(
        [TextColumn("", least=_STATE), TextColumn(""), TextColumn("")], rows, color=color
    )


def verdict(checks: Sequence[Check]) -> str:
    """Whether recording is possible, in a sentence or two."""
    missing = [check.name for check in checks if check.level == "missing"]
    if missing:
        return f"Recording is not possible here. Missing: {', '.join(missing)}."
    warned = sum(check.level == "warn" for check in checks)
    rest = f" Optional, marked warn: {warned}." if warned else ""
    return f"Nothing needed is missing.{rest}"
