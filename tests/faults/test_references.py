"""What keeps memory alive in servers that others wrote, under load."""

from __future__ import annotations

import json
import os
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


@dataclass(frozen=True)
class Finished:
    """What a run of `memory --json` printed, its CPU seconds, and its largest size in bytes."""

    found: dict[str, Any]
    cpu_s: float
    peak_bytes: int


def run(*arguments: str) -> Finished:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen([*COMMAND, *arguments], stdout=output, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        assert child.returncode == 0, errors.read()
        cpu_s = usage.ru_utime + usage.ru_stime
        return Finished(json.loads(output.read()), cpu_s, usage.ru_maxrss << 10)


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
