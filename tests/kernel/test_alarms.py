"""The kernel shows when the probes of a target were passed so often that a budget is used up."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from threading import Semaphore
from time import monotonic, sleep

import pytest

from ebpfprof.overhead.budget import MOST_CREDIT_NS
from ebpfprof.process.process import Target as Opened
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.profilers.waits.rows import WaitsConfig
from tests.bench.workloads import WORKLOADS, Running
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.recorder import recording
from tests.targets_run import Target

pytestmark = pytest.mark.alone

BOUNDED = WaitsConfig(block=True, mutex=False, one_in_eight=True)
DEADLINE_S = 20.0
SENDS = 10_000
BURSTS = 2
BURST_S, PAUSE_S = 0.1, 1.0
LATE_NS = 60_000_000  # until the alarm is heard and the probes are detached, with one more window


def test_it_rings_once_when_the_hits_are_used_up_and_not_before() -> None:
    rung = Semaphore(0)
    with (
        Target.start(program("pingpong"), f"-sends={SENDS}") as running,
        Opened(running.pid) as target,
        WaitsCollector(1, BOUNDED) as waits,
    ):
        waits.load()
        assert waits.alarms
        waits.attach(0, inspect(target))
        waits.alarms.arm(0, 1e12, rung.release)
        running.ask("", "ns ")
        assert waits.runs(0).count >= SENDS
        for _ in range(2):
            waits.alarms.arm(0, SENDS / 10, rung.release)
            running.ask("", "ns ")
            assert rung.acquire(timeout=DEADLINE_S)
            running.ask("", "ns ")  # on both processors, perhaps
        waits.alarms.arm(0, 1e12, rung.release)
        while rung.acquire(blocking=False):  # once for each processor
            pass
        running.ask("", "ns ")
        assert not rung.acquire(blocking=False)


def test_a_burst_exceeds_the_budget_by_little_more_than_the_credit(tmp_path: Path) -> None:
    (mutex,) = [each for each in WORKLOADS if each.name == "mutex"]
    with ExitStack() as held:
        running = Running(mutex, held)
        units = running.units_in(BURST_S)
        options = ("--profile", "block", "--max-overhead", "1")
        with recording(running.target.pid, tmp_path, *options) as recorder:
            for _ in range(BURSTS):
                until = monotonic() + PAUSE_S
                while monotonic() < until:
                    sleep(0.05)
                running.round(units)
            recorder.interrupt()
            output = recorder.finish().stdout.decode()
    ((number, unit, percent),) = re.findall(r"Overhead: ([\d.]+) (us|ms|s), ([\d.]+) %", output)
    lost_ns = float(number) * {"us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    allowed_ns = max(MOST_CREDIT_NS, lost_ns / float(percent))
    assert lost_ns < allowed_ns + MOST_CREDIT_NS + LATE_NS
