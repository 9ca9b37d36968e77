"""What every refusal has in common: a line with a way out, and nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ebpfprof.errors import ExitCode
from tests.recorder import COMMAND, run

IMPOSSIBLE_PID = 1 << 30


def refused(
    code: ExitCode,
    *arguments: str,
    folder: Path,
    command: Sequence[str] = COMMAND,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run the command, which must end with `code` before it records; return its message.

    Commands to type stand below its sentences, indented.
    """
    before = sorted(os.listdir(folder))
    finished = run(*arguments, folder=folder, command=command, env=env)
    assert finished.code == code, finished.stderr
    assert finished.stdout == b""
    assert sorted(os.listdir(folder)) == before
    line, *commands = finished.stderr.splitlines()
    assert all(each.isprintable() for each in (line, *commands))
    assert line.startswith("ebpfprof: ")
    assert all(each.startswith("    ") for each in commands)
    return "\n".join([line.removeprefix("ebpfprof: "), *commands])
