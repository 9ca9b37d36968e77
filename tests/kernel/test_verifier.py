"""The kernel's verifier gives up after a million instructions; how far our programs are from that.

Older kernels have more work with the same program (docs/kernels.md has figures).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ebpfprof.kernel import features
from ebpfprof.process.process import Target as Process
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.session import Session
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from tests.builds import in_full
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.targets_run import Target

LIMIT = 800_000
DEFAULT_LIMIT = 850_000  # of all programs together
WITH_MAY_GOTO = 400_000

RECORDINGS = {
    "block": Options(kinds=("block",)),
    "mutex": Options(kinds=("mutex",)),
    "block and mutex": Options(kinds=("block", "mutex")),
    "all at once": Options(
        kinds=("block", "mutex"), block_rate_ns=1000, by_lock=True, runtime_locks=True
    ),
    "all at once, labels with some keys": Options(
        kinds=("block", "mutex"),
        block_rate_ns=1000,
        by_lock=True,
        runtime_locks=True,
        labels=("tenant", "tier"),
    ),
    "in windows": Options(
        kinds=("block", "mutex"), by_lock=True, runtime_locks=True, max_overhead=1
    ),
    "wakers": Options(kinds=("wakers",)),
    "wakers beside all, in windows": Options(
        kinds=("block", "mutex", "wakers"),
        by_lock=True,
        runtime_locks=True,
        labels=("tenant", "tier"),
        max_overhead=1,
    ),
    "wakers beside all, sampled": Options(
        kinds=("block", "mutex", "wakers"),
        block_rate_ns=1000,
        mutex_fraction=3,
        by_lock=True,
        runtime_locks=True,
    ),
    "cpu": Options(kinds=("cpu",)),
    "allocations": Options(kinds=("heap", "allocs"), max_overhead=1),
    "cpu, labels with some keys": Options(kinds=("cpu",), labels=("tenant", "tier")),
}


DEFAULT = Options(kinds=("block", "mutex", "cpu"), max_overhead=1)
# The largest ones.
LARGE = ("wakers beside all, in windows", "allocations")
OTHERS = [name for name in RECORDINGS if name not in LARGE]


@pytest.mark.parametrize("name", [*LARGE, *in_full(*OTHERS)])
def test_programs_stay_far_below_the_verifiers_limit(name: str) -> None:
    with Target.start(program("pingpong")) as target, Session([target.pid], RECORDINGS[name]):
        verified = instructions_verified()
    assert verified
    assert max(verified) < LIMIT, verified


@pytest.mark.parametrize("mode", [*in_full("plain"), "cgo"])
def test_the_program_of_traces_stays_far_below_it(mode: str) -> None:
    """With labels: a target that can set some."""
    before = len(instructions_verified())  # what other tests hold in this process
    with (
        Target.start(program("traced", mode=mode)) as target,
        Process(target.pid) as process,
        TraceRecorder(inspect(process), TraceOptions(exact_starts=True)) as recorder,
    ):
        recorder.load()
        verified = instructions_verified()
    assert len(verified) - before == 3
    assert max(verified) < LIMIT, verified


def test_all_programs_of_the_default_take_the_verifier_little_time() -> None:
    """It takes about a microsecond an instruction, of the CPU time of each start."""
    with Target.start(program("pingpong")) as target, Session([target.pid], DEFAULT):
        verified = instructions_verified()
    assert sum(verified) < (WITH_MAY_GOTO if features.have_may_goto() else DEFAULT_LIMIT), verified


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_so_do_programs_for_kernels_before_6_9(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """These don't know may_goto."""
    monkeypatch.setattr(features, "have_may_goto", lambda: False)
    with Target.start(program("pingpong")) as target:
        with Session([target.pid], RECORDINGS[name]):
            verified = instructions_verified()
        with Session([target.pid], DEFAULT):
            of_default = instructions_verified()
    assert max(verified) < LIMIT, verified
    assert sum(of_default) < DEFAULT_LIMIT, of_default


@pytest.mark.parametrize("name", [*in_full("in windows"), "cpu, labels with some keys"])
def test_programs_for_many_processes_are_not_more_work(name: str) -> None:
    """As serve has: a loop over targets must not be verified for each of its values."""
    with LiveSession(RECORDINGS[name], capacity=64):
        verified = instructions_verified()
    assert verified
    assert max(verified) < LIMIT, verified


def instructions_verified() -> list[int]:
    """How many the verifier looked at, for each program that this process has (Linux 5.16)."""
    found = []
    for path in Path("/proc/self/fdinfo").iterdir():
        text = path.read_text() if os.path.exists(path) else ""
        found += [int(number) for number in re.findall(r"^verified_insns:\s*(\d+)$", text, re.M)]
    return sorted(found)
