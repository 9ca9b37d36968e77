"""Run `ebpfprof` and its targets as some user, with some capabilities."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.kernel.programs import program
from tests.targets_run import Target

ROOT = Path(__file__).parents[2]
NOBODY: Final = 65534
# For code that needs nothing of ours: that of the environment may lie where others can't enter.
ANYBODYS_PYTHON: Final = (os.path.realpath(sys.executable), "-I")


@contextmanager
def anybodys_folder() -> Iterator[Path]:
    """A folder that every user may enter, as not those of pytest."""
    with tempfile.TemporaryDirectory(prefix="ebpfprof-test-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@contextmanager
def open_checkout() -> Iterator[Path]:
    """This checkout where any user may enter it, as he may not if it lies in root's home."""
    folder = Path(tempfile.mkdtemp(prefix="ebpfprof-checkout-"))
    folder.chmod(0o755)
    subprocess.run(["mount", "--bind", ROOT, folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()


def by_user(uid: int, capabilities: Collection[str] = ()) -> tuple[str, ...]:
    """What to put before a command, so that a user runs it with exactly these capabilities."""
    listed = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    return (
        "/usr/bin/setpriv",
        *(f"--reuid={uid}", f"--regid={uid}", "--clear-groups"),
        *(f"--{kind}={listed}" for kind in ("inh-caps", "ambient-caps", "bounding-set")),
    )


@contextmanager
def process_of(uid: int) -> Iterator[Target]:
    """A process of one user, whose executable other users may not read."""
    with anybodys_folder() as folder:
        copy = Path(shutil.copy(program("ticker"), folder))
        copy.chmod(0o500)
        os.chown(copy, uid, uid)
        with target_of(uid, copy) as target:
            yield target


@contextmanager
def folder_of(uid: int) -> Iterator[Path]:
    """Where a user may write."""
    with anybodys_folder() as path:
        os.chown(path, uid, uid)
        yield path


def python_in(checkout: Path) -> str:
    """The Python that runs the tests, as it is called in that place of the checkout."""
    return sys.executable.replace(str(ROOT), str(checkout), 1)


def ebpfprof(checkout: Path, *verb: str) -> tuple[str, ...]:
    """`ebpfprof` as it is called in that place of the checkout."""
    python = python_in(checkout)
    return ("/usr/bin/env", f"PYTHONPATH={checkout}", python, "-m", "ebpfprof", *verb)


@contextmanager
def as_nobody() -> Iterator[tuple[str, ...]]:
    """The command run by an ordinary user without any right, in a place that he may enter."""
    with open_checkout() as checkout:
        yield (*by_user(NOBODY), *ebpfprof(checkout))


def target_of(uid: int, binary: Path) -> Target:
    """A target that a user runs, and no right beyond that."""
    command, *options = by_user(uid)
    return Target.start(Path(command), *options, str(binary))
