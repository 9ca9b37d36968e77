"""Processes whose Go runtime is not in the executable, and the commands that start them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kernel.programs import NEWEST, TARGETS
from tests.targets_run import Command, Target
from tests.toolchains import toolchain

LOADER = Path("/lib64/ld-linux-x86-64.so.2")

# A process that calls functions of libraries, as it is asked: "1 Rounds 30" calls that of the
# second library.
_CALLER = """
import ctypes, os, sys
libraries = [ctypes.CDLL(path) for path in sys.argv[1:]]
for library in libraries:
    library.Allocated.restype = ctypes.c_ulonglong
print("ready", os.getpid(), flush=True)
for line in sys.stdin:
    number, name, *words = line.split()
    values = [int(word) if word.isdigit() else word.encode() for word in words]
    print("done", getattr(libraries[int(number)], name)(*values), flush=True)
"""
_RUNNER = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).Run()"
_C_HOST = "void Run(void);\nint main(void) { Run(); return 0; }\n"
_C_LIBRARY = "void Run(void);\nvoid *keeps_it = Run;\n"


def golibrary() -> Path:
    """The target golibrary, as a library for C."""
    return toolchain(NEWEST).build(TARGETS / "golibrary", "c-shared")


def copies(folder: Path, *names: str) -> list[Path]:
    """Copies of golibrary: a process that opens several has a Go runtime of each."""
    return [Path(shutil.copy(golibrary(), folder / name)) for name in names]


@contextmanager
def calling(*libraries: Path) -> Iterator[Target]:
    """A Python process that has opened these libraries, and calls what it is asked to."""
    with Target.start((sys.executable, "-c", _CALLER), *map(str, libraries)) as target:
        yield target


def shared_in_python(target: str, minor: str, folder: Path) -> Command:
    """The command line, without arguments, of a library of -buildmode=c-shared in Python."""
    library = toolchain(minor).build(TARGETS / target, "c-shared")
    return sys.executable, "-c", _RUNNER, library, "--"


def archive_in_python(target: str, minor: str, folder: Path) -> Command:
    """The same of a C library in Python that a Go archive was linked into."""
    library = _linked(target, minor, folder, _C_LIBRARY, "-shared", "-fPIC")
    return sys.executable, "-c", _RUNNER, library, "--"


def archive_in_c(target: str, minor: str, folder: Path) -> Command:
    """The same of a C program that a Go archive was linked into."""
    return (_linked(target, minor, folder, _C_HOST),)


def archive_in_fixed_c(target: str, minor: str, folder: Path) -> Command:
    """The same of one that can't be loaded elsewhere."""
    return (_linked(target, minor, folder, _C_HOST, "-no-pie"),)


def by_the_loader(target: str, minor: str, folder: Path) -> Command:
    """The same of a program that is an argument of ld.so."""
    return LOADER, toolchain(minor).build(TARGETS / target, "cgo")


def pie_by_the_loader(target: str, minor: str, folder: Path) -> Command:
    """The same of a position-independent one."""
    return LOADER, toolchain(minor).build(TARGETS / target, "cgopie")


def _linked(target: str, minor: str, folder: Path, source: str, *options: str) -> Path:
    archive = toolchain(minor).build(TARGETS / target, "c-archive")
    host, main = folder / "host", folder / "host.c"
    main.write_text(source)
    subprocess.run(
        ["gcc", *options, "-o", host, main, archive, "-lpthread", "-lresolv"], check=True
    )
    return host
