"""What a trap takes, by the probed instruction: ns a pass with an empty BPF program, warm.

    python -m tests.bench.bench_traps [--rounds N]

As root. Rounds take turns in a random order; shows the median and the fastest of each.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import sys
from statistics import median
from time import perf_counter_ns
from typing import Final

from ebpfprof.kernel import probe_cost
from ebpfprof.kernel.uprobes import own_probe
from tests.bench.cost import first_of_all

# What a loop does between two countings; the first instruction is probed.
BODIES: Final = {
    "nop": "90",
    "nop of five bytes": "0f1f440000",
    "jcc rel8": "7500",
    "jmp rel8": "eb00",
    "push (and pop)": "555d",
    "call (and pop)": "e80000000058",
    "mov: single-stepped": "4889c0",
}
_BEGIN: Final = bytes.fromhex("4889f9")  # mov %rdi,%rcx
_COUNT: Final = bytes.fromhex("48ffc9")  # dec %rcx
_PASSES: Final = 10_000


def trap_ns(body: bytes) -> float:
    """One round: how much longer a pass takes with a probe on the first instruction of `body`."""
    back = bytes([0x75, 0x100 - len(body) - len(_COUNT) - 2, 0xC3])  # jnz to the body; ret
    with probe_cost._code(_BEGIN + body + _COUNT + back) as (path, address):
        loop = ctypes.CFUNCTYPE(None, ctypes.c_long)(address)

        def pass_ns() -> float:
            loop(_PASSES)  # warms up
            began_ns = perf_counter_ns()
            loop(_PASSES)
            return (perf_counter_ns() - began_ns) / _PASSES

        bare_ns = pass_ns()
        with own_probe(path, len(_BEGIN), runs_program=True):
            return pass_ns() - bare_ns


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_traps")
    parser.add_argument("--rounds", type=int, default=9)
    rounds: int = parser.parse_args(words).rounds
    found: dict[str, list[float]] = {name: [] for name in BODIES}
    with first_of_all():
        for _ in range(rounds):
            for name in random.sample(list(BODIES), len(BODIES)):
                found[name].append(trap_ns(bytes.fromhex(BODIES[name])))
    for name, each in found.items():
        print(f"{name:22} median {median(each):6,.0f} ns, fastest {min(each):6,.0f} ns")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
