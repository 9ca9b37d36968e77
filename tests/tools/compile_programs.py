"""Compiles the BPF programs of a release with the BCC of this machine .

    python -m tests.tools.compile_programs FOLDER

Writes a file for each combination of options that commands use, their SHA-256, and the versions of
BCC and LLVM: what ebpfprof.kernel.packaged_programs reads. The same commit, BCC and LLVM give the
same files; a folder that has them already stays as it is. As root, since BCC makes the maps.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import zlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

from ebpfprof.kernel import packaged_programs
from ebpfprof.kernel.compiler import bcc_versions, compile_with_bcc
from ebpfprof.kernel.packaged_programs import CHECKSUMS, COMPILER
from ebpfprof.kernel.program_source import ProgramSource
from ebpfprof.profilers.cpu import cpu_program
from ebpfprof.profilers.heap import gate_program
from ebpfprof.profilers.waits import collector
from ebpfprof.tracing import program as trace_program

_DEBIANS = "/usr/lib/python3/dist-packages"


def sources() -> list[ProgramSource]:
    """All programs of a release."""
    return [
        *cpu_program.sources(),
        gate_program.source(),
        *collector.sources(),
        *trace_program.sources(),
    ]


def compiled(wanted: Sequence[ProgramSource]) -> dict[str, bytes]:
    """The files of these programs by name."""
    names = map(packaged_programs.file_name, wanted)
    # BCC keeps what it compiled: each process compiles a few.
    with get_context("spawn").Pool(maxtasksperchild=8) as pool:
        return dict(zip(names, pool.map(_file, wanted, chunksize=1), strict=True))


def write(folder: Path, files: dict[str, bytes], compiler: str = "") -> None:
    """Make the folder of these files, in place of one that is there.

    `compiler` is what compiled them, by default the one of this machine.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / CHECKSUMS).write_text(packaged_programs.checksums_of(files))
    (folder / COMPILER).write_text((compiler or _compiler()) + "\n")


def _file(source: ProgramSource) -> bytes:
    _find_bcc()
    return packaged_programs.encoded(compile_with_bcc(source))


def _compiler() -> str:
    versions = bcc_versions()
    return f"BCC {versions.bcc}, LLVM {versions.llvm}, zlib {zlib.ZLIB_RUNTIME_VERSION}"


def _find_bcc() -> None:
    """Let this environment, which may hide the system's packages, import BCC, behind its own."""
    if find_spec("bcc") is None and _DEBIANS not in sys.path:
        sys.path.append(_DEBIANS)


def _is_complete(folder: Path, wanted: Sequence[ProgramSource]) -> bool:
    names = {CHECKSUMS, COMPILER, *map(packaged_programs.file_name, wanted)}
    made = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return made == names and (folder / COMPILER).read_text() == _compiler() + "\n"


def _lines(folder: Path) -> Iterator[str]:
    sizes = [path.stat().st_size for path in folder.iterdir()]
    by = (folder / COMPILER).read_text().strip()
    yield f"{len(sizes) - 2} programs by {by}: {sum(sizes)} bytes"


def main() -> int:
    """Compile into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    _find_bcc()
    wanted = sources()
    if not _is_complete(folder, wanted):
        write(folder, compiled(wanted))
    for line in _lines(folder):
        print(line)
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
