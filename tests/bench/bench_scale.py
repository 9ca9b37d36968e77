"""What recording takes at the sizes of production: goroutines, stacks, depth and waits at once.

    python -m tests.bench.bench_scale [--seconds 3600] [--goroutines N] [--stacks N] [--depth N]

As root. For each line of the table a Go program lets its goroutines wait, each in one of the
stacks, wakes all of them once, and then has waits without a pause on all processors, in as many
stacks again, for that many seconds (10). "snapshot" is what it takes then from the maps of the
kernel to the pprof file; "CPU s" is what that used of a processor, which other programs don't
change. Fails if anything was lost, ebpfprof took more than 150 MB, or a snapshot used more than a
second.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.targets_run import Target
from tests.toolchains import toolchain

MAX_BYTES = 150_000_000
MAX_SNAPSHOT_S = 1.0
DEADLINE_S = 600.0
COLUMNS = (
    ("goroutines", 10),
    ("stacks", 8),
    ("depth", 6),
    ("seconds", 8),
    ("waits", 12),
    ("waits/s", 10),
    ("lost", 6),
    ("peak MB", 8),
    ("maps MB", 8),
    ("snapshot s", 11),
    ("CPU s", 6),
)


@dataclass(frozen=True)
class Size:
    """How large the target is."""

    goroutines: int
    stacks: int
    depth: int


# One of each, and all at once. The two kinds of waits have stacks of their own, of either
# partner of a pair: 4,000 are 20,000 then.
SIZES = (
    Size(100, 16, 8),
    Size(100_000, 16, 8),
    Size(1_000, 4_000, 32),
    Size(1_000, 4_000, 124),
    Size(100_000, 4_000, 124),
)


def measure(size: Size, seconds: float) -> dict[str, Any]:
    """Record a target of that size; what scalerecorder tells, and how many waits a second."""
    program = toolchain("1.27").build(Path(__file__).parent.parent / "targets" / "scale")
    arguments = (
        f"-goroutines={size.goroutines}",
        f"-stacks={size.stacks}",
        f"-depth={size.depth}",
    )
    with tempfile.TemporaryDirectory() as folder, Target.start(program, *arguments) as target:
        recorder = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.scalerecorder", str(target.pid), f"{folder}/file"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert recorder.stdout
        assert recorder.stdout.readline() == "recording\n"
        target.ask("park", "parked", DEADLINE_S)
        target.ask("release 1", "parked", DEADLINE_S)
        began_s = time.monotonic()
        target.ask(f"run {round(seconds * 1000)}", "ran", seconds + DEADLINE_S)
        took_s = time.monotonic() - began_s
        output, _ = recorder.communicate("end\n")
        assert recorder.returncode == 0
    found: dict[str, Any] = json.loads(output)
    found["rate"] = (found["waits"] - size.goroutines) / took_s
    return found


def faults(found: dict[str, Any]) -> list[str]:
    """What is not as it should be."""
    wrong = [f"lost: {name} {count}" for name, count in found["lost"].items()]
    if found["peak_bytes"] > MAX_BYTES:
        wrong.append(f"memory: {found['peak_bytes'] / 1e6:.0f} MB")
    if found["snapshot_cpu_s"] > MAX_SNAPSHOT_S:
        wrong.append(f"snapshot: {found['snapshot_cpu_s']:.2f} s")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--goroutines", type=int)
    parser.add_argument("--stacks", type=int)
    parser.add_argument("--depth", type=int)
    given = parser.parse_args()
    sizes: tuple[Size, ...] = SIZES
    if given.goroutines or given.stacks or given.depth:
        sizes = (Size(given.goroutines or 100, given.stacks or 16, given.depth or 8),)
    print(f"Linux {os.uname().release}, {os.cpu_count()} processors")
    print(" ".join(f"{name:>{width}}" for name, width in COLUMNS))
    wrong: list[str] = []
    for size in sizes:
        found = measure(size, given.seconds)
        row = (
            f"{size.goroutines:,}",
            f"{found['samples']:,}",
            str(size.depth),
            f"{given.seconds:g}",
            f"{found['waits']:,}",
            f"{found['rate']:,.0f}",
            str(sum(found["lost"].values())),
            f"{found['peak_bytes'] / 1e6:.0f}",
            f"{found['maps_bytes'] / 1e6:.0f}",
            f"{found['snapshot_s']:.2f}",
            f"{found['snapshot_cpu_s']:.2f}",
        )
        print(" ".join(f"{text:>{width}}" for text, (_, width) in zip(row, COLUMNS, strict=True)))
        wrong += faults(found)
    for each in wrong:
        print(f"FAILED: {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
