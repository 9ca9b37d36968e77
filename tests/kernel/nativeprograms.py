"""The C and C++ programs of tests/targets/native, compiled as these tests need them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from tests.toolchains import cache_dir, locked, run

SOURCES: Final = Path(__file__).parent.parent / "targets" / "native"
# All functions are looked up before main. Else the first call of each does that, on a stack that
# has no caller: the frame address of ld.so's _dl_runtime_resolve is in RBX, which no rule has.
BOUND_EARLY: Final = {"LD_BIND_NOW": "1"}
FLAGS: Final = ("-O2", "-g", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall")


@cache
def compiled(name: str, *flags: str) -> Path:
    """A program, or a library if `flags` say so, of native/NAME.c or .cc, kept as Go's targets are.

    Raises ToolchainError if it is not without a warning.
    """
    (source,) = (p for p in SOURCES.glob(f"{name}.*") if p.suffix in (".c", ".cc"))
    compiler = "g++" if source.suffix == ".cc" else "gcc"
    command = [compiler, *FLAGS, "-Werror", *flags, str(source), "-pthread", "-ldl"]
    folder = cache_dir() / "targets" / f"native-{name}-{_key(command)}"
    program = folder / name
    with locked(folder.with_suffix(".lock")):
        if not program.exists():
            folder.mkdir(exist_ok=True)
            fresh = folder / f"{name}.new"
            run([*command, "-o", fresh], cwd=None, env=dict(os.environ))
            fresh.rename(program)
    return program


def _key(command: list[str]) -> str:
    """The hash of all that goes into a program."""
    version = subprocess.run([command[0], "--version"], stdout=subprocess.PIPE, check=True).stdout
    digest = hashlib.sha256(version + "\0".join(command).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
