"""The C and C++ programs of tests/targets/native, compiled as these tests need them."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

SOURCES: Final = Path(__file__).parent.parent / "targets" / "native"
# All functions are looked up before main. Else the first call of each does that, on a stack that
# has no caller: the frame address of ld.so's _dl_runtime_resolve is in RBX, which no rule has.
BOUND_EARLY: Final = {"LD_BIND_NOW": "1"}
FLAGS: Final = ("-O2", "-g", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall")


@cache
def compiled(name: str, *flags: str) -> Path:
    """A program, or a library if `flags` say so, of native/NAME.c or .cc; raises on errors."""
    (source,) = (p for p in SOURCES.glob(f"{name}.*") if p.suffix in (".c", ".cc"))
    compiler = "g++" if source.suffix == ".cc" else "gcc"
    program = Path(mkdtemp(prefix="ebpfprof-native-")) / name
    command = [compiler, *FLAGS, *flags, str(source), "-o", str(program), "-pthread", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return program
