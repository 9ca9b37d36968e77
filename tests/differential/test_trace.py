"""Samples of goroutines against Go's own execution trace of the same seconds: who did what."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import pytest

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.goruntime.samples.sampling_thread import SamplingRate, SamplingThread
from ebpfprof.goruntime.samples.shared_sampler import SharedSampler
from ebpfprof.goruntime.samples.state_sums import StateTotals
from ebpfprof.process.process import Target as Process
from tests.builds import in_full
from tests.differential.go_trace import Group, Spent, time_spent
from tests.go_target import inspect
from tests.kernel.programs import NEWEST, program
from tests.targets_run import Target
from tests.toolchains import toolchain

pytestmark = pytest.mark.alone

SECONDS = 2.5
HZ = 200
SIGMAS = 4
FEW = 30  # sampler at one goroutine
# A goroutine's state changes a moment before or after the tracer reads its clock: about 100 ns of
# the processor, or more on the wall if the kernel preempts its thread in between. Looks take the
# processor for about a hundredth of the time.
BIAS_NS = 1000
BIAS = 0.01
# What the tracer calls our states (runtime/traceruntime.go, traceBlockReasonStrings).
WORDS = {
    "sync.Mutex.Lock": "sync",
    "sync.RWMutex.RLock": "sync",
    "sync.RWMutex.Lock": "sync",
    "sync.Cond.Wait": "sync.(*Cond).Wait",
    "IO wait": "network",
    "preempted": "runnable",
}


@dataclass
class Sampled:
    """The time that sampler say, and its variance in ns²."""

    ns: float = 0.0
    variance: float = 0.0


def sampled(totals: StateTotals, go: GoTarget) -> dict[Group, Sampled]:
    """The sums of samples by groups as the trace has them."""
    names = {state.start_pc for state in totals.states if state.start_pc}
    starts = {pc: go.binary.frames(pc - go.load_bias)[-1].function for pc in names}
    found: dict[Group, Sampled] = defaultdict(Sampled)
    for state, total in totals.states.items():
        if state.start_pc:
            group = Group(starts[state.start_pc], WORDS.get(state.word, state.word))
            found[group].ns += total.ns
            found[group].variance += total.variance
    return found


def both(work: str, folder: Path) -> tuple[dict[Group, Sampled], dict[Group, Spent], float]:
    """What samples say of a work, what Go's trace says, and the mean time between samples in ns."""
    written = folder / "trace"
    with (
        Target.start(program("traced")) as target,
        Process(target.pid) as process,
    ):
        go = inspect(process)
        target.ask(f"trace {written} {work}", "begun")
        with SharedSampler(
            go, rate=SamplingRate(HZ, HZ), has_labels=False, thread=SamplingThread(0.3)
        ) as sampler:
            begin_ns = sampler.start()
            sleep(SECONDS)
            sampler.stop()
            totals = sampler.totals()
        target.ask("end", "ended")
        found = sampled(totals, go)
        target.kill()
    text = toolchain(NEWEST).go("tool", "trace", "-d=parsed", written)
    spent = time_spent(text.splitlines(), begin_ns, begin_ns + totals.length_ns)
    return found, spent, totals.mean_ns


@pytest.mark.parametrize(
    "work",
    [
        "locks",
        *in_full("channels", "syscalls", "cpu", "network", "sleeps"),
    ],
)
def test_times_in_each_state_are_those_of_the_trace(work: str, tmp_path: Path) -> None:
    """Within four of the reported standard errors, and what both understand differently."""
    found, spent, mean_ns = both(work, tmp_path)
    ours = {group for group in (*found, *spent) if group.start.startswith("main.")}
    assert len(ours) >= 4
    wrong = []
    for group in sorted(ours):
        theirs, mine = spent.get(group, Spent()), found.get(group, Sampled())
        variance = mine.variance
        if theirs.ns < FEW * mean_ns:  # few samples hit it: what is reported has an error, too
            variance = max(variance, theirs.ns * mean_ns)
        allowed_ns = SIGMAS * math.sqrt(variance) + BIAS * theirs.ns + BIAS_NS * theirs.times
        if abs(mine.ns - theirs.ns) > allowed_ns:
            wrong.append((group, theirs, mine, allowed_ns))
    assert wrong == []
