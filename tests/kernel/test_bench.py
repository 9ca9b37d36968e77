"""The benchmark of costs works: one workload, one round of each kind of profiler."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

from tests.targets_run import SLOWNESS

ARMS: Final = {
    "go-block-1": "Go's own: block, rate 1",
    "block": "ebpfprof: block",
    "bpftrace-mutex": "bpftrace: mutex",
}
DEADLINE_S: Final = 120 * SLOWNESS
# 1,234.5 [1,200.0, 1,300.5]
ESTIMATE: Final = r"[\d,]*\d\.\d+ \[[^]]+\]"


def test_one_workload_is_measured_under_each_profiler() -> None:
    command = [sys.executable, "-m", "tests.bench.cost", "--quick", "--rounds", "1"]
    command += ["--workloads", "mutex", "--arms", ",".join(ARMS), "--parts", "costs,accuracy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    for title in ARMS.values():
        row = re.search(rf"^\| {re.escape(title)} \| ({ESTIMATE}) \|$", done.stdout, re.MULTILINE)
        assert row, done.stdout
    # The lock's stack, and that of who waits for all; the collector's, should it run.
    assert re.search(r"^\| contended mutex \| [23] \| 100.0% \|", done.stdout, re.MULTILINE)


def test_a_name_that_is_unknown_is_told_with_those_that_are() -> None:
    command = [sys.executable, "-m", "tests.bench.cost", "--workloads", "chess"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert done.stderr.startswith("There is no workload chess; there are: pingpong, ")
