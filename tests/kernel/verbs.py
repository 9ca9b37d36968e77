"""Run verbs of the command to their end, as root, as another user, or where something is hidden."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.targets_run import SLOWNESS

DEADLINE_S = 60 * SLOWNESS
PYTHON = (sys.executable, "-m", "ebpfprof")


@dataclass(frozen=True)
class Said:
    """What a verb printed, and its exit code."""

    code: int
    stdout: str
    stderr: str


def verb(
    *arguments: str,
    command: Sequence[str] = PYTHON,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Said:
    """Run `ebpfprof ARGUMENTS`; fails if it ends in what a user must never see."""
    done = subprocess.run(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        cwd=folder,
        timeout=DEADLINE_S,
        check=False,
    )
    for text in (done.stdout, done.stderr):
        assert "Traceback" not in text
        assert "This is a bug" not in text
        assert all(line.isprintable() for line in text.splitlines())
    return Said(done.returncode, done.stdout, done.stderr)


def with_file(content: Path, path: str) -> tuple[str, ...]:
    """The command where a file of /proc or /sys holds what `content` does."""
    top = "/" + path.split("/")[1]
    script = f'mount --make-private {top} && mount --bind "$1" "$2" && shift 2 && exec "$@"'
    isolating = ("/usr/bin/unshare", "--mount", "--propagation", "unchanged")
    return (*isolating, "/bin/sh", "-c", script, "sh", str(content), path, *PYTHON)
