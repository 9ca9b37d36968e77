"""Rates of `ebpfprof top` are those of a second, in each table, also in the first.

Goroutines that do nothing but wait have waited as long as they were watched, and not longer.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby

import pytest

from tests.builds import in_full
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.targets_run import SLOWNESS, Target

GOROUTINES = 40
ROUNDED = 1.006  # three digits, the first of which may be a 1
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
DURATION = r"([\d,.]+) (ns|us|ms|s|min)"
DEADLINE_S = 60 * SLOWNESS


def seconds(number: str, unit: str) -> float:
    return float(number.replace(",", "")) * SECONDS[unit]


def tables(targets: Sequence[Target], *options: str) -> list[str]:
    """What is printed of them, table by table."""
    pids = [word for target in targets for word in ("--pid", str(target.pid))]
    command = (sys.executable, "-m", "ebpfprof", "top", *pids, "--show-idle", *options)
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert not any(has_probes(target.pid) for target in targets)
    return done.stdout.split("\n\n")


def window_s(table: str) -> float:
    """Which time the table is about, by its own words."""
    found = re.search(rf"  last {DURATION}", table)
    assert found, table
    return seconds(found[1], found[2])


def waited(table: str) -> float:
    """How many seconds all goroutines together waited in one."""
    found = re.search(rf"  delay {DURATION}/s", table)
    assert found, table
    return seconds(found[1], found[2])


@pytest.mark.parametrize("bound", [*in_full("0"), "1"])
def test_waiting_per_second_is_at_most_the_number_of_goroutines(bound: str) -> None:
    options = ("--profile", "block,cpu", "--max-overhead", bound)
    with Target.start(program("crowd"), f"-goroutines={GOROUTINES}") as target:
        found = tables([target], *options, "--interval", "0.5", "--batch", "4")
    assert waited(found[0]) <= GOROUTINES * ROUNDED, found[0]
    # A wait belongs to the table in which it ends: of the time before, too, if it began there.
    # Without a new window the table stays: each counts once.
    rates = [rate for rate, _ in groupby((window_s(table), waited(table)) for table in found)]
    for number in range(1, len(rates) + 1):
        watched_s = sum(window for window, _ in rates[:number])
        waited_s = sum(window * rate for window, rate in rates[:number])
        assert waited_s <= GOROUTINES * watched_s * ROUNDED, found
    assert waited_s > 0.5 * GOROUTINES * watched_s, found


@pytest.mark.full
def test_the_first_table_counts_from_the_start_of_each_target() -> None:
    """The first target is recorded while the others are still opened."""
    options = ("--profile", "block,cpu", "--max-overhead", "0", "--interval", "0.1", "--once")
    with ExitStack() as held:
        arguments = program("crowd"), f"-goroutines={GOROUTINES}"
        targets = [held.enter_context(Target.start(*arguments)) for _ in range(8)]
        (table,) = tables(targets, *options)
    rows = re.findall(rf"^ +{DURATION} .* (\d+) chan receive +main\.wait", table, re.MULTILINE)
    assert {int(pid) for *_, pid in rows} == {target.pid for target in targets}, table
    for number, unit, _ in rows:
        assert 0 < seconds(number, unit) <= GOROUTINES * ROUNDED, table


@pytest.mark.full
def test_estimated_delays_have_standard_errors() -> None:
    options = ("--profile", "block", "--max-overhead", "1", "--interval", "1", "--batch", "4")
    with Target.start(program("workloads")) as target:
        target.say("go mutex 100000000 goroutines=4 procs=2")
        *_, table = tables([target], *options)
        target.kill()
    assert re.search(r"^ +Delay/s +Error +Share +", table, re.MULTILINE), table
    rows = re.findall(rf"^ +{DURATION} +(\+-[\d.]+%|<0\.1%) .* Mutex\.Lock ", table, re.MULTILINE)
    assert rows, table
