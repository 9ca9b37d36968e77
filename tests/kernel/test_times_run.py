"""How often goroutines run, by Go's own counters, against a program that logs its own stops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebpfprof.goruntime.goroutines.times_run import TimesRun
from ebpfprof.process.process import Target as Process
from tests.builds import versions
from tests.go_target import inspect
from tests.targets_run import Target
from tests.toolchains import toolchain

STOPS = Path(__file__).parent.parent / "targets" / "stops"
_ROUNDS = 10
_PERIOD = 8
_OF_RUNTIME = 8


@pytest.mark.parametrize("minor", versions())
def test_go_counts_one_in_eight_times_that_a_goroutine_runs_again(minor: str) -> None:
    """To windows, that is how much there was to record (SampledSums.scale)."""
    program = toolchain(minor).build(STOPS)
    with Target.start(program) as target, Process(target.pid) as process:
        go = inspect(process)
        offset = go.binary.layout.offset
        times_run = TimesRun(go)
        target.ask(f"{offset('g', 'trackingSeq')} {offset('g', 'goid')}", "parked")
        before = times_run.count()
        assert before is not None
        for _ in range(_ROUNDS):
            target.ask("go", "parked")
        ran = (times_run.count() or 0) - before
        logged = json.loads(target.ask("log", "{"))
    assert len(logged) == 6
    stops = sum(logged.values())
    assert stops > 4000
    # Of each goroutine it is less than eight stops apart, and the runtime has some, too.
    assert abs(_PERIOD * ran - stops) < _PERIOD * (len(logged) + _OF_RUNTIME)
