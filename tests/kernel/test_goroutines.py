"""Goroutines that were parked before the recording, read from outside."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from ebpfprof.goruntime.goroutines.parked import ParkedScanner, parked_goroutines
from tests.builds import NEWEST, builds, versions
from tests.go_target import inspect
from tests.kernel.acting_process import ActingProcess
from tests.kernel.parked_program import (
    Running,
    all_goroutines,
    expected,
    facts,
    poke,
    running,
    word,
)

TURNS = {"main.turnLeft": 12, "main.turnRight": 13}
LEVELS = {"deepReceive": 60, "wideReceive": 40, "deepLock": 100}
# What is kept of any stack, as in the BPF programs.
MAX_DEPTH = 136
BUSY = re.compile(
    r"((runtime|sync|internal/sync)\.\S+ )+(main\.startBusy\.func\S+ ){1,2}"
    r"((main\.busyLeft ){2,30}|(main\.busyRight ){2,30})"
    r"main\.busyLoop (main\.startBusy\S+ )?runtime\.goexit"
)


@pytest.mark.parametrize(("version", "mode"), builds())
def test_each_parked_goroutine_is_found_with_its_stack(version: str, mode: str) -> None:
    with running(version, mode) as run:
        parked = parked_goroutines(run.go)
        assert (parked.unreadable, parked.cut_short) == (0, 0)
        assert facts(run, parked) == expected(run)
        stacks = {goroutine.goid: run.names(goroutine) for goroutine in parked.goroutines}
        for name, levels in LEVELS.items():
            for goid in run.reports[name]["goids"]:
                assert stacks[goid].count(f"main.{name}") == levels
        deepest = run.reports["deeperReceive"]["goids"]
        for each in parked.goroutines:
            if each.goid in deepest:
                assert len(each.return_pcs) == MAX_DEPTH
                assert stacks[each.goid][-1] == "main.deeperReceive"
            else:
                assert stacks[each.goid][-1] == "runtime.goexit"
        for goid in run.reports.get("blockInGo", {"goids": []})["goids"]:
            assert stacks[goid][-3:] == ["main.fromGo", "main.start.func1", "runtime.goexit"]


@pytest.mark.parametrize("minor", versions())
def test_a_scanner_finds_the_same_goroutines(minor: str) -> None:
    """And it knows that the other goroutines wait."""
    with running(minor, "plain") as run:
        scanner = ParkedScanner(run.go, has_labels=False)
        found = {each.goid: each for each in scanner.parked().values()}
        assert found == {
            goroutine.goid: goroutine for goroutine in parked_goroutines(run.go).goroutines
        }
        waiting = {each.goid for each in scanner.waiting}
        everybody = {goid for report in run.reports.values() for goid in report["goids"]}
        assert everybody <= waiting
        assert len(everybody - set(found)) >= 4


@pytest.mark.parametrize("minor", versions())
def test_stacks_are_right_while_goroutines_wake_and_stacks_move(minor: str) -> None:
    with running(minor, "plain", "-busy=1000") as run:
        planned = expected(run)
        busy = set()
        for _ in range(10):
            parked = parked_goroutines(run.go)
            found = facts(run, parked)
            assert found.items() <= planned.items()
            assert len(planned) - len(found) <= parked.unreadable
            assert parked.cut_short == 0
            for goroutine in parked.goroutines:
                names = " ".join(run.names(goroutine))
                if "main.busy" in names:
                    assert BUSY.fullmatch(names)
                    busy.add(goroutine.goid)
        assert len(busy) > 500


def test_a_goroutine_that_parks_elsewhere_is_read_again() -> None:
    """Whichever read it was: of the table, of its stack, or of frames beyond the copy."""
    with running(NEWEST, "plain") as run:
        (goid,) = run.reports["turnLeft"]["goids"]
        left, right = ("main.turnLeft", 12), ("main.turnRight", 13)
        turn_behind = 1
        while True:
            reads = reads_until_found(run, goid, left, None)
            if turn_behind >= reads:
                break
            reads_until_found(run, goid, right, turn_behind)
            left, right = right, left
            turn_behind += 1
        assert turn_behind >= 5


def reads_until_found(
    run: Running, goid: int, expected: tuple[str, int], turn_behind: int | None
) -> int:
    """How often memory is read until a goroutine is found, in that many levels of that function.

    It is made to park elsewhere behind the read `turn_behind`.
    """
    reads, begins = 0, False

    def behind(_address: int, _data: bytes) -> None:
        nonlocal reads
        reads += begins
        if begins and reads == turn_behind:
            run.target.ask("turn", "turned")

    with ActingProcess(run.target.pid, behind) as process:
        go = inspect(process)
        begins = True
        parked = parked_goroutines(go)
    assert (parked.unreadable, parked.cut_short) == (0, 0)
    (found,) = [goroutine for goroutine in parked.goroutines if goroutine.goid == goid]
    turns = Counter(name for name in run.names(found) if name.startswith("main.turn"))
    # Where it turned behind the read of its stack, what was read is what it was.
    whole = [{name: levels, "main.turn": 1} for name, levels in TURNS.items()]
    assert turns in (whole if turn_behind else [{expected[0]: expected[1], "main.turn": 1}])
    return reads


@pytest.mark.parametrize(
    ("status", "is_parked"),
    [(0x1004, True), (10, True), (0x100A, True), (1, False), (2, False), (3, False), (6, False)],
)
def test_the_status_of_a_goroutine_says_if_it_is_parked(status: int, is_parked: bool) -> None:
    """Numbers of runtime/runtime2.go: 4 is _Gwaiting, 10 _Gleaked, 0x1000 _Gscan."""
    with running(NEWEST, "plain") as run:
        planned = expected(run)
        goroutine = run.one("send")
        at = goroutine.address + run.go.binary.layout.offset("g", "atomicstatus")
        poke(run.target.pid, at, status)
        parked = parked_goroutines(run.go)
        assert (parked.unreadable, parked.cut_short) == (0, 0)
        if not is_parked:
            del planned[goroutine.goid]
        assert facts(run, parked) == planned
        run.target.kill()


def test_a_goroutine_with_a_corrupt_record_is_counted() -> None:
    with running(NEWEST, "plain") as run:
        planned = expected(run)
        goroutine = run.one("receive")
        at = goroutine.address + run.go.binary.layout.offset("g", "sched.bp")
        poke(run.target.pid, at, 8)
        parked = parked_goroutines(run.go)
        assert parked.unreadable == 1
        del planned[goroutine.goid]
        assert facts(run, parked) == planned
        run.target.kill()


def test_a_goroutine_asleep_in_its_outermost_function_is_read() -> None:
    with running(NEWEST, "plain") as run:
        memory = run.go.target.memory
        layout = run.go.binary.layout
        goids = run.reports["silentSleep"]["goids"]
        for g in all_goroutines(run, memory):
            if word(memory, g + layout.offset("g", "goid")) in goids:
                poke(run.target.pid, word(memory, g + layout.offset("g", "sched.bp")), 0)
        parked = parked_goroutines(run.go)
        assert (parked.unreadable, parked.cut_short) == (0, 0)
        assert facts(run, parked) == expected(run)
        run.target.kill()


def test_a_corrupt_stack_is_cut_short() -> None:
    with running(NEWEST, "plain") as run:
        goroutine = run.one("deepReceive")
        memory = run.go.target.memory
        layout = run.go.binary.layout
        frame = word(memory, goroutine.address + layout.offset("g", "sched.bp"))
        for _ in range(10):
            frame = word(memory, frame)
        for wrong in (frame, 1 << 40, frame + 1, (1 << 64) - 8):
            poke(run.target.pid, frame, wrong)
            parked = parked_goroutines(run.go)
            assert (parked.unreadable, parked.cut_short) == (0, 1)
            assert facts(run, parked) == expected(run)
            (found,) = [each for each in parked.goroutines if each.goid == goroutine.goid]
            assert found.return_pcs == goroutine.return_pcs[:11]
        # While its stack is being moved, another sample may tell.
        scanned = 0x1004
        poke(run.target.pid, goroutine.address + layout.offset("g", "atomicstatus"), scanned)
        parked = parked_goroutines(run.go)
        assert (parked.unreadable, parked.cut_short) == (1, 0)
        run.target.kill()
