"""`ebpfprof doctor`: what is missing for profiling here, and the command that fixes it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from ebpfprof.commands.verb import Verb
from ebpfprof.console.text import printable

if TYPE_CHECKING:
    from ebpfprof.commands.doctor_checks import Check

_COLORS = {"ok": "green", "warn": "yellow", "missing": "red"}
_WIDEST = 100
_MIN_ROOM = 20
_STATE = 9


@click.command("doctor", cls=Verb)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs to read.")
def command(as_json: bool) -> int:
    """Tell what this machine lacks, and the command that fixes it.

    Tries out what recording needs of the kernel, on the smallest scale, and looks at BCC, rights
    and limits. The exit code is 0 if everything needed is there, else the one that a recording
    would end with (10 the kernel, 11 BCC, 4 rights, 13 a refused probe, 1 anything else; of several
    the first of these). ebpfprof can do without what is marked
    "warn".

    \b
    Examples:
      sudo ebpfprof doctor
      sudo ebpfprof doctor --json | jq -r '.checks[] | select(.level != "ok") | .remedy'
    """
    from ebpfprof.commands.doctor_checks import examine, exit_code
    from ebpfprof.console.terminal import has_color, say, width

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
    """What was found; below all that is not "ok", what that means and how to fix it.

    It does without rich, which may be what is missing.
    """
    names = max(len(check.name) for check in checks)
    indent = " " * (_STATE + names + 2)
    lines = []
    for check in checks:
        state = check.level.ljust(_STATE)
        state = click.style(state, fg=_COLORS[check.level]) if color else state
        lines.append(f"{state}{check.name.ljust(names)}  {printable(check.found)}")
        if check.remedy:
            # A BPF verifier's or a compiler's words may take lines.
            said = [check.meaning, *check.remedy.splitlines()]
            room = max((width or _WIDEST) - len(indent), _MIN_ROOM)
            for text in map(printable, said):
                wrapped = wrap(text, room, break_long_words=False, break_on_hyphens=False)
                lines += [indent + line for line in wrapped]
    return "".join(f"{line}\n" for line in lines)


def _verdict(checks: Sequence[Check]) -> str:
    missing = [check.name for check in checks if check.level == "missing"]
    if missing:
        return f"Profiles can't be recorded here. Missing: {', '.join(missing)}."
    warned = sum(check.level == "warn" for check in checks)
    rest = f" ebpfprof can do without what is marked warn ({warned})." if warned else ""
    return f"Everything that is needed is there.{rest}"
