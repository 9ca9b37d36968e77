"""Lines from DWARF beside llvm-symbolizer and `go tool addr2line`, on a Go program of about 100 MB.

    python -m tests.bench.bench_native [ADDRESSES]

Looks up ADDRESSES (10,000) random addresses of the program's text by its DWARF, each time in a new
process, and prints the best of several runs, and the memory of that process at its most.
addr2line does not expand inlined calls.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Final

from tests.bench.bench_symbolizer import addresses
from tests.bench.bigprogram import big_program
from tests.toolchains import MINORS, toolchain

RUNS: Final = 3
ROOT: Final = Path(__file__).resolve().parents[2]

# Run in a process of its own, so that its memory is its own.
CHILD: Final = """
import json, sys
from symbolizer import ElfFile
from symbolizer.dwarf.sections import dwarf_section
from symbolizer.native.lines import NativeLines

with ElfFile.open(sys.argv[1]) as elf:
    lines = NativeLines.open(elf)
    frames = lines.frames(json.load(sys.stdin))
    json.dump({
        "known": sum(map(bool, frames.values())),
        "frames": sum(map(len, frames.values())),
        "decoded_bytes": lines.decoded_bytes,
        "line_bytes": len(dwarf_section(elf, "debug_line")),
    }, sys.stdout)
"""


def measured(command: list[str], asked: str) -> tuple[float, int, bytes]:
    """Seconds, bytes of memory at most, and output of the quickest of several runs."""
    runs = []
    for _ in range(RUNS):
        start = time.perf_counter()
        with (
            tempfile.TemporaryFile() as input_file,
            subprocess.Popen(
                command, stdin=_filled(input_file, asked), stdout=subprocess.PIPE, cwd=ROOT
            ) as child,
        ):
            assert child.stdout is not None
            output = child.stdout.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise subprocess.CalledProcessError(child.returncode, command)
        runs.append((time.perf_counter() - start, usage.ru_maxrss * 1024, output))
    return min(runs)


def _filled(file: IO[bytes], text: str) -> IO[bytes]:
    file.write(text.encode())
    file.seek(0)
    return file


def main(arguments: list[str]) -> None:
    go = toolchain(MINORS[-1])
    program = big_program(go)
    pcs = addresses(program, int(arguments[0]) if arguments else 10_000)
    text = "".join(f"{pc:#x}\n" for pc in pcs)
    seconds, memory_bytes, output = measured(
        [sys.executable, "-c", CHILD, str(program)], json.dumps(pcs)
    )
    shown = json.loads(output)
    print(f"ours              {seconds * 1e3:8.0f} ms {memory_bytes / 1e6:8.0f} MB")
    addr2line = go.go("tool", "-n", "addr2line").strip()
    for name, command in (
        ("llvm-symbolizer", ["llvm-symbolizer", f"--obj={program}"]),
        ("go tool addr2line", [addr2line, str(program)]),
    ):
        seconds, memory_bytes, _ = measured(command, text)
        print(f"{name:17} {seconds * 1e3:8.0f} ms {memory_bytes / 1e6:8.0f} MB")
    decoded, whole = shown["decoded_bytes"], shown["line_bytes"]
    print(f"{shown['known']} addresses known, {shown['frames']} frames")
    print(f"decoded {decoded / 1e6:.1f} MB of {whole / 1e6:.1f} MB of line programs")


if __name__ == "__main__":
    main(sys.argv[1:])
