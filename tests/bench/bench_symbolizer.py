"""The symbolizer beside `go tool addr2line`, on a Go program of about 100 MB.

    python -m tests.bench.bench_symbolizer [ADDRESSES]

Looks up ADDRESSES (10,000) random addresses of the program's text, each time in a new process, and
prints the best of several runs. addr2line gives the innermost line only; the symbolizer expands
inlined calls.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from symbolizer import ElfFile, GoBinary
from tests.bench.bigprogram import big_program
from tests.toolchains import MINORS, Toolchain, toolchain

RUNS: Final = 5
SEED: Final = 1

# Run in a process of its own, so that its memory is its own.
CHILD: Final = """
import json, sys, time
import numpy
from symbolizer import ElfFile, GoBinary

def memory_bytes(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024

pcs = json.load(sys.stdin)
before = memory_bytes("VmRSS:")
start = time.perf_counter()
with ElfFile.open(sys.argv[1]) as elf:
    program = GoBinary.open(elf)
    opened = time.perf_counter()
    frames = program.frames_many(pcs)
    looked_up = time.perf_counter()
    (park,) = program.functions_named("runtime.gopark")
    named = time.perf_counter()
    program.call_sites(park)
    called = time.perf_counter()
json.dump({
    "open_s": opened - start,
    "frames_s": looked_up - opened,
    "named_s": named - looked_up,
    "call_sites_s": called - named,
    "memory_bytes": memory_bytes("VmHWM:") - before,
    "frames": sum(map(len, frames.values())),
}, sys.stdout)
"""


def addresses(program: Path, count: int) -> list[int]:
    """Random addresses of the program's text, and its size printed."""
    with ElfFile.open(program) as elf:
        binary = GoBinary.open(elf)
        text = binary.text_end - binary.text_start
        functions = sum(1 for _ in binary.functions())
        print(
            f"{program.stat().st_size / 1e6:.0f} MB, text {text / 1e6:.0f} MB,"
            f" {functions} functions, {count} addresses"
        )
        choice = random.Random(SEED)
        return [choice.randrange(binary.text_start, binary.text_end) for _ in range(count)]


def ours(program: Path, pcs: list[int]) -> dict[str, float]:
    """The best of several runs, by the time to open and look up."""
    runs = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", CHILD, program],
                input=json.dumps(pcs),
                check=True,
                capture_output=True,
                text=True,
                cwd=Path(__file__).resolve().parents[2],
            ).stdout
        )
        for _ in range(RUNS)
    ]
    return min(runs, key=lambda run: run["open_s"] + run["frames_s"])


def addr2line_s(go: Toolchain, program: Path, pcs: list[int]) -> float:
    """Seconds that `go tool addr2line` takes, the best of several runs."""
    tool = go.go("tool", "-n", "addr2line").strip()
    asked = "".join(f"{pc:#x}\n" for pc in pcs)
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run([tool, program], input=asked, check=True, capture_output=True, text=True)
        times.append(time.perf_counter() - start)
    return min(times)


def main(arguments: list[str]) -> None:
    go = toolchain(MINORS[-1])
    program = big_program(go)
    pcs = addresses(program, int(arguments[0]) if arguments else 10_000)
    best = ours(program, pcs)
    together = best["open_s"] + best["frames_s"]
    theirs = addr2line_s(go, program, pcs)
    print(f"open              {best['open_s'] * 1e3:8.1f} ms")
    print(f"frames            {best['frames_s'] * 1e3:8.1f} ms, {best['frames']} frames")
    print(f"function by name  {best['named_s'] * 1e3:8.1f} ms")
    print(f"call sites        {best['call_sites_s'] * 1e3:8.1f} ms")
    print(f"memory            {best['memory_bytes'] / 1e6:8.1f} MB more at most")
    print(f"go tool addr2line {theirs * 1e3:8.1f} ms")
    print(f"ratio             {theirs / together:8.1f} times as fast")


if __name__ == "__main__":
    main(sys.argv[1:])
