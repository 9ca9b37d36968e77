"""How many instructions our own paths take: of time, this machine's noise would be most.

    python -m tests.bench.bench_instructions

Runs them under callgrind (Debian's valgrind, which this installs if it is missing), twice with
different numbers of stacks, always the same ones: 24 frames each, of Go's own tables of a real
program. The difference, by stack, is free of what Python takes to start.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, cast

from ebpfprof.export import pprof
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.process import Target
from ebpfprof.profile.model import Mapping
from ebpfprof.profilers.waits.kinds import BLOCK
from ebpfprof.profilers.waits.rows import StackTotal
from ebpfprof.profilers.waits.wait_samples import wait_samples
from ebpfprof.profilers.waits.wait_stacks import StackTranslator
from symbolizer import ElfFile, GoBinary
from symbolizer.codeanalysis.park_sites import probe_sites
from tests.bench.workloads import program

FEW: Final = 200
MANY: Final = 1_200
FRAMES: Final = 24
CALLERS: Final = 2_000  # distinct return addresses
SEED: Final = 1
PARTS: Final = {
    "names": "sums of stacks → profile with names",
    "file": "profile → pprof file",
}


def run(path: Path, stacks: int, part: str) -> None:
    """Go the way of a snapshot up to a part of it. Runs under callgrind."""
    with ElfFile.open(path) as elf:
        binary = GoBinary.open(elf)
        sites = probe_sites(binary)
        mapping = Mapping(0x400000, 0x10000000, 0, str(path), "")
        nobody = cast("Target", None)  # names come from the file alone
        go = GoTarget(nobody, "", binary, 0, (mapping,), sites, None)
        chance = random.Random(SEED)
        callers = [chance.randrange(binary.text_start, binary.text_end) for _ in range(CALLERS)]
        totals = [
            StackTotal(
                "block", 0, (sites.parks[0].return_pc, *chance.choices(callers, k=FRAMES)), 1, 1
            )
            for _ in range(stacks)
        ]
        samples, *_ = wait_samples(StackTranslator(go), [(total, ()) for total in totals])
        profile = BLOCK.make_profile(samples, (mapping,), time_ns=1, duration_ns=1)
        if part == "file":
            pprof.encode(profile)


def instructions(path: Path, stacks: int, part: str) -> int:
    """What callgrind counts."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [sys.executable, "-m", "tests.bench.bench_instructions"]
        done = subprocess.run(
            [*command, str(path), str(stacks), part],
            check=True,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
    (found,) = re.findall(r"Collected : (\d+)", done.stderr)
    return int(found)


def main() -> None:
    if not shutil.which("valgrind"):
        subprocess.run(["apt-get", "-q", "install", "-y", "valgrind"], check=True)
    path, before = program(), 0.0
    for part, title in PARTS.items():
        difference = instructions(path, MANY, part) - instructions(path, FEW, part)
        a_stack = difference / (MANY - FEW)
        print(f"{title:40} {a_stack - before:10,.0f} instructions a stack", flush=True)
        before = a_stack


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        main()
