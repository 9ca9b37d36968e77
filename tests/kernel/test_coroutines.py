"""Goroutines that continue by coroutines are never said to stand still: nothing in memory tells."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from ebpfprof.commands.until_wait import UntilWait, wait_conditions
from ebpfprof.goruntime.goroutines.fields import GOID_SHIFT
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.goruntime.samples.sampler import GoroutineSampler
from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.goruntime.waits.standing import Threshold
from ebpfprof.process.process import Target as Process
from ebpfprof.tracing.triggers import Trigger
from tests.builds import versions
from tests.go_target import inspect
from tests.kernel.programs import NEWEST, program
from tests.targets_run import Target

COROUTINE = "coroutine"
LOOKS = 8
MANY = 30


@pytest.fixture(scope="module", params=versions("1.23", NEWEST))
def go(request: pytest.FixtureRequest) -> Iterator[GoTarget]:
    binary = program("coroutines", request.param)
    with Target.start(binary) as target, Process(target.pid) as process:
        yield inspect(process)
        target.kill()


def test_a_dump_does_not_say_that_they_did_not_move(go: GoTarget) -> None:
    dumper = GoroutineDumper(go)
    found = dumper.dump(apart_s=0.05, samples=LOOKS)
    judge = dumper.judge()
    for _ in range(LOOKS):
        dumper.sample(judge)
    standing = {wait >> GOID_SHIFT for wait in judge.standing(Threshold(2)).waits.tolist()}
    switching = [goroutine for goroutine in found.goroutines if goroutine.state == COROUTINE]
    assert len(switching) >= 2
    assert {(each.stood_ns, each.waited_ns, each.wait) for each in switching} == {(0, 0, None)}
    assert standing
    assert not {each.goid for each in switching} & standing
    assert any(each.stood_ns for each in found.goroutines)


def test_samples_of_a_recording_do_not_find_them_standing(go: GoTarget) -> None:
    sampler = GoroutineSampler(go, has_labels=False)
    for _ in range(LOOKS):
        sampler.sample()
    words = {state.word for state in sampler.standing_states(Threshold(6))}
    seen = {total.word for total in sampler.totals().states}
    assert COROUTINE in seen
    assert words
    assert COROUTINE not in words


def test_a_trace_does_not_end_for_them(go: GoTarget) -> None:
    conditions = wait_conditions([UntilWait("main.pull", 0.05)], go)
    trigger = Trigger(go, waits=conditions)
    while trigger.samples < MANY:
        assert not trigger.is_met(), trigger.why


def test_a_trace_can_not_wait_for_one(go: GoTarget) -> None:
    with pytest.raises(click.UsageError, match="coroutine"):
        wait_conditions([UntilWait(COROUTINE, 1)], go)
