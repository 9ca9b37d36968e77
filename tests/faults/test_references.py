"""What keeps memory alive in servers that others wrote, under load."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.faults.real_programs import REAL_PROGRAMS, RealProgram

NAMES: Final = ("etcd", "nats", "caddy", "prometheus")
PROGRAMS: Final = [program for program in REAL_PROGRAMS if program.name in NAMES]
MOST_CPU_S: Final = 10.0
MOST_BYTES: Final = 400 << 20
COMMAND: Final = (sys.executable, "-m", "ebpfprof", "memory", "--json")

# The largest size of a process that forks is that of its child, too: so a small one starts it.
MEASURE: Final = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(code)
"""


@dataclass(frozen=True)
class Finished:
    """What a run of `memory --json` printed, its CPU seconds, and its largest size in bytes."""

    found: dict[str, Any]
    cpu_s: float
    peak_bytes: int


def run(*arguments: str) -> Finished:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        measured = [sys.executable, "-c", MEASURE, *COMMAND, *arguments]
        child = subprocess.run(measured, stdout=output, stderr=errors, check=False)
        output.seek(0)
        errors.seek(0)
        *text, used = output.read().splitlines()
        assert child.returncode == 0, errors.read()
        cpu_s, peak_kib = used.split()
        return Finished(json.loads("".join(text)), float(cpu_s), int(peak_kib) << 10)


def untyped(path: dict[str, Any]) -> int:
    """The bytes of objects below a place whose type is not known."""
    own = 0 if path["type"] else int(path["used_bytes"])
    return own + sum(untyped(below) for below in path["below"])


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_most_of_the_heap_is_reached_under_load(program: RealProgram) -> None:
    program.build()
    with program.start() as target:
        pid = str(target.ready_pid)
        statistics = run(pid).found["statistics"]
        finished = run(pid, "--references")
    found = finished.found
    reached = found["used_bytes"] + found["changed_bytes"]
    # What was allocated is alive, or garbage since the last collection: half of it, by default.
    assert 0.4 * statistics["allocated_bytes"] <= reached <= 3 * statistics["heap_in_use_bytes"]
    # How much changes meanwhile depends on how long it takes, on a busy machine.
    assert found["used_bytes"] > reached / 10
    assert found["left_out_bytes"] == 0
    assert sum(root["total_bytes"] for root in found["roots"]) == found["used_bytes"]
    assert {root["kind"] for root in found["roots"]} >= {"variable", "goroutine", "runtime"}
    # Stripped, so what variables refer to has no type unless it is large.
    assert sum(map(untyped, found["roots"])) < 0.9 * found["used_bytes"]
    assert found["leaked_goroutines"] == []
    assert finished.cpu_s < MOST_CPU_S
    assert finished.peak_bytes < MOST_BYTES
