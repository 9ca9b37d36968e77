"""The C files in bpf/, found wherever they were installed."""

import re
from functools import cache
from pathlib import Path

_INCLUDE = re.compile(r'\s*#include "([\w./]+)"')


@cache
def bpf_folder() -> Path:
    """The folder with the C files: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_bpf"
    return installed if installed.is_dir() else package.parent / "bpf"


def program_text(name: str) -> str:
    """The program `name` (a path in bpf/) with our own headers spelled out.

    BCC turns map operations into helper calls in the main file only, not in what it includes.
    `#line` keeps the places in the compiler's messages right.
    """
    return "\n".join(_expanded(name))


def _expanded(name: str) -> list[str]:
    """The lines of a file; its #include lines name paths in bpf/, too."""
    lines = [f'#line 1 "{name}"']
    for number, line in enumerate((bpf_folder() / name).read_text().splitlines(), start=1):
        include = _INCLUDE.fullmatch(line)
        if include:
            lines += _expanded(include[1])
            lines.append(f'#line {number + 1} "{name}"')
        else:
            lines.append(line)
    return lines
