"""The benchmark of costs works: one workload, one round of each kind of profiler."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.bench.affordable import RATES
from tests.targets_run import SLOWNESS

pytestmark = pytest.mark.alone

ARMS: Final = {
    "go-block-1": "Go's own: block, rate 1",
    "block": "ebpfprof: block",
    "bpftrace-mutex": "bpftrace: mutex",
}
DEADLINE_S: Final = 240 * SLOWNESS
# 1,234.5 [1,200.0, 1,300.5]
ESTIMATE: Final = r"[\d,]*\d\.\d+ \[[^]]+\]"


def cost(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.bench.cost", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)


def one_round(arms: Iterable[str], parts: str) -> subprocess.CompletedProcess[str]:
    words = ("--workloads", "mutex", "--arms", ",".join(arms), "--parts", parts)
    return cost("--quick", "--rounds", "1", *words)


def has_row(title: str, shown: str) -> bool:
    row = rf"^\| {re.escape(title)} \| {ESTIMATE} \|$"
    return re.search(row, shown, re.MULTILINE) is not None


@pytest.mark.full
def test_a_workload_is_measured_under_each_profiler() -> None:
    done = one_round(ARMS, "costs,accuracy")
    assert done.returncode == 0, done.stderr
    for title in ARMS.values():
        assert has_row(title, done.stdout), done.stdout
    # The lock's stack, and that of the main goroutine; the collector's, if it ran.
    assert re.search(r"^\| contended mutex \| [23] \| 100.0% \|", done.stdout, re.MULTILINE)


@pytest.mark.full
def test_the_cost_of_the_bound_is_compared_with_its_promise() -> None:
    done = one_round(["bounded-all"], "costs")
    title = "ebpfprof: block, mutex, cpu, at most 1 %"
    assert has_row(title, done.stdout), done.stderr
    # One round on a busy machine may have any result; the message and the exit status agree.
    (output,) = re.findall(
        rf"^\| contended mutex: at most 2% slower, {title} \| (.*?) \|", done.stdout, re.MULTILINE
    )
    assert (output, done.returncode) in {
        ("kept", 0),
        ("not shown: within noise", 0),
        ("**not kept**", 1),
    }


@pytest.mark.full
def test_one_wait_in_eight_is_measured_by_itself() -> None:
    words = ("--workloads", "mutex", "--arms", "eighth", "--rounds", "1", "--quick")
    done = cost("--one-in-eight", *words)
    assert done.returncode == 0, done.stderr
    assert has_row("ebpfprof: block, one wait in eight", done.stdout), done.stdout
    for workload in ("ping-pong", "contended mutex", "worker pool", "HTTP server"):
        assert re.search(rf"^\| {workload} \| -?[\d,]+ \| [\d,]+ \|", done.stdout, re.MULTILINE)
    shares = re.findall(r"^\| [\d,]+ \| (\d+)% of the time \|", done.stdout, re.MULTILINE)
    # The fewer waits, the more of them are recorded, all of them at first.
    assert len(shares) == len(RATES)
    assert int(shares[0]) > int(shares[-1])


def test_an_unknown_workload_is_reported_with_the_known_ones() -> None:
    done = cost("--workloads", "chess")
    assert done.returncode == 1
    assert done.stderr.startswith("There is no workload chess; there are: pingpong, ")


def test_an_autogroup_without_a_share_is_not_changed(tmp_path: Path) -> None:
    """As init's own session, in which services and containers may be started."""
    group = tmp_path / "autogroup"
    group.touch()
    code = (
        "import sys; from pathlib import Path; from tests.bench.cost import first_of_all\n"
        "with first_of_all(Path(sys.argv[1])): print('measured')"
    )
    command = [sys.executable, "-c", code, str(group)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.stdout, group.read_text()) == ("measured\n", ""), done.stderr
