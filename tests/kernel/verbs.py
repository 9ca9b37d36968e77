"""Run verbs of the command to their end, as root, as another user, or where something is hidden."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.targets_run import SLOWNESS

ROOT = Path(__file__).parents[2]
NOBODY = 65534
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


@contextmanager
def as_nobody() -> Iterator[tuple[str, ...]]:
    """The command run by an ordinary user, in a place of this checkout that he may enter."""
    folder = Path(tempfile.mkdtemp(prefix="ebpfprof-checkout-"))
    folder.chmod(0o755)
    subprocess.run(["mount", "--bind", ROOT, folder], check=True)
    try:
        yield (
            *("/usr/bin/setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
            *("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"),
            *("/usr/bin/env", f"PYTHONPATH={folder}"),
            *(sys.executable.replace(str(ROOT), str(folder), 1), "-m", "ebpfprof"),
        )
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()


def with_file(content: Path, path: str) -> tuple[str, ...]:
    """The command where a file of /proc or /sys holds what `content` does."""
    top = "/" + path.split("/")[1]
    script = f'mount --make-private {top} && mount --bind "$1" "$2" && shift 2 && exec "$@"'
    isolating = ("/usr/bin/unshare", "--mount", "--propagation", "unchanged")
    return (*isolating, "/bin/sh", "-c", script, "sh", str(content), path, *PYTHON)
