"""Dumps of a program whose clock is not ours: it has a time namespace (time_namespaces(7))."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from ebpfprof.kernel.clock import clock_ahead_ns
from ebpfprof.server import goroutines
from tests.builds import versions
from tests.go_target import read
from tests.kernel.namespaces import NEEDS_NAMESPACES
from tests.kernel.oncall_program import OnCall
from tests.kernel.programs import program
from tests.targets_run import Target

pytestmark = NEEDS_NAMESPACES

AHEAD_S = 100_000
HOUR_S = 3600


@contextmanager
def ahead(name: str, version: str = "1.27") -> Iterator[tuple[Target, int]]:
    """A program whose clock is ahead of ours, and its pid."""
    command = ["--time", f"--monotonic={AHEAD_S}", "--kill-child", str(program(name, version))]
    with Target.start(Path("/usr/bin/unshare"), *command) as target:
        yield target, int(target.output[-1].split()[1])
        target.kill()


# They keep the end of a sleep elsewhere.
@pytest.mark.parametrize("version", versions("1.19", "1.27"))
def test_ends_of_sleeps_are_reported_by_its_clock(version: str) -> None:
    with ahead("oncall", version) as (target, pid):
        run = OnCall(target, json.loads(target.output[0]))
        found = run.dump("--apart", "0", pid=pid)
        facts = run.facts
    for name, hours in {"sleepLong": 1, "sleepAgain": 2}.items():
        left_s = found[facts[name]["id"]]["waits_for"]["wakes_in_s"]
        assert (hours - 0.5) * HOUR_S < left_s < hours * HOUR_S


def test_waits_that_the_collector_saw_are_as_long_as_they_are() -> None:
    """It ran when the finalizer waited, before the program was ready."""
    with ahead("finalizers") as (target, pid):
        ready_s = monotonic()
        assert clock_ahead_ns(pid) == AHEAD_S * 10**9
        assert clock_ahead_ns(os.getpid()) == 0
        text = read(pid, goroutines.traceback).decode()
        least_s = monotonic() - ready_s
        found = OnCall(target, {}).dump("--apart", "0", pid=pid)
    waited = [each["waited_at_least_s"] for each in found.values()]
    assert least_s < max(waited) < HOUR_S
    assert not re.findall(r"\d{3,} minutes", text)
