"""The C files in bpf/, found wherever they were installed."""

import re
from functools import cache
from pathlib import Path

_GUARD = "#ifndef EBPFPROF_"
_INCLUDE = re.compile(r'\s*#include "([\w./]+)"')


@cache
def bpf_folder() -> Path:
    """The folder with the C files: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_bpf"
    return installed if installed.is_dir() else package.parent / "bpf"


@cache
def program_text(name: str) -> str:
    """The program `name` (a path in bpf/) with our own headers spelled out.

    BCC turns map operations into helper calls in the main file only, not in what it includes.
    `#line` keeps the places in the compiler's messages right.
    """
    return "\n".join(_expanded(name, set(), is_certain=True))


def _expanded(name: str, included: set[str], *, is_certain: bool) -> list[str]:
    """The lines of a file; its #include lines name paths in bpf/, too.

    `is_certain` unless it is in an #if. `included` has the headers that certainly are, above, and
    have a guard against being included again.
    """
    text = (bpf_folder() / name).read_text()
    has_guard = _GUARD in text
    nesting = -1 if has_guard else 0  # of the guard, 0
    lines = [f'#line 1 "{name}"']
    for number, line in enumerate(text.splitlines(), start=1):
        nesting += line.startswith("#if") - line.startswith("#endif")
        include = _INCLUDE.fullmatch(line)
        if include is None:
            lines.append(line)
        elif include[1] in included:
            lines.append("")
        else:
            lines += _expanded(include[1], included, is_certain=is_certain and nesting == 0)
            lines.append(f'#line {number + 1} "{name}"')
    if has_guard and is_certain:
        included.add(name)
    return lines
