"""The program of the recorded inputs: built so that every checkout has the same bytes of it."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Final

from tests.toolchains import WHEEL_VERSIONS, minor_of, toolchain

SOURCE: Final = Path(__file__).parent / "program"
DATA: Final = Path(__file__).parent / "data"
GO_VERSION: Final = WHEEL_VERSIONS[-1]
PROGRAM: Final = DATA / "program.xz"
"""An image (tests/images) of the program, with what the outputs need of its file."""
_DIGEST: Final = DATA / "program.sha256"
_ANEW: Final = (
    "The recorded inputs hold addresses of another program than this one. If tests/recorded/program"
    " or the newest Go toolchain was changed on purpose, record again, as root, with code whose"
    " profiles are right: `python -m tests.recorded.record`. That replaces all of"
    " tests/recorded/data; look at the difference."
)


def build(folder: Path) -> Path:
    """Build the program in `folder`; its bytes depend on its source and on the toolchain only.

    Raises ToolchainError.
    """
    source = folder / "source"
    shutil.copytree(SOURCE, source)
    built = folder / "program"
    fixed = ("-trimpath", "-buildvcs=false", "-buildmode=exe", "-pgo=off", "-ldflags=-buildid=")
    toolchain(minor_of(GO_VERSION)).go("build", *fixed, "-o", built, ".", cwd=source)
    return built


def digest(program: Path) -> str:
    """What tells the program from others: the version of Go, and the SHA-256 of its bytes."""
    found = hashlib.sha256(program.read_bytes()).hexdigest()
    return f"{found}  go{toolchain(minor_of(GO_VERSION)).version}\n"


def keep_digest(program: Path) -> None:
    """Take note of the program of which inputs were recorded just now."""
    _DIGEST.write_text(digest(program))


def require_recorded(program: Path) -> None:
    """Fail unless it is the program of which the inputs were recorded."""
    assert digest(program) == _DIGEST.read_text(), _ANEW
