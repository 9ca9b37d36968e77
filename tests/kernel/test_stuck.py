"""Deadlocks, lost wakes and programs asleep are found in real programs, and in no other ones."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.asleep import Asleep
from ebpfprof.profile.deadlocks import Circle
from ebpfprof.profile.goroutines import GoroutineDump
from ebpfprof.profile.stuck import LostWake, stuck
from ebpfprof.profile.waiting_for import Sureness
from tests.builds import VERSIONS, builds, versions
from tests.go_target import inspect
from tests.kernel.programs import NEWEST, program
from tests.kernel.verbs import verb
from tests.targets_run import Target

CERTAIN, LIKELY = Sureness.CERTAIN, Sureness.LIKELY
APART_S = 0.1


@contextmanager
def running(mode: str, minor: str = NEWEST, build: str = "plain") -> Iterator[Target]:
    with Target.start(program("stuck", minor, build), mode) as target:
        yield target
        target.kill()


def dumped(target: Target) -> GoroutineDump:
    with Process(target.pid) as process:
        go = inspect(process)
        dumper = GoroutineDumper(go)
        found = dumper.dump(apart_s=APART_S)
        go.binary.elf.close()
    return found


def ids(finding: Circle | LostWake | Asleep) -> list[int]:
    return [goroutine.goid for goroutine in finding.goroutines]


def rotated(circle: list[int]) -> list[int]:
    first = circle.index(min(circle))
    return circle[first:] + circle[:first]


@pytest.mark.parametrize(("version", "mode"), builds())
def test_deadlocks_and_lost_wakes_are_certain(version: str, mode: str) -> None:
    with running("locks", version, mode) as target:
        made: dict[str, list[int]] = json.loads(target.ask("circles", "{"))
        lost: dict[str, dict[str, Any]] = json.loads(target.ask("lost", "{"))
        found = stuck(dumped(target))
    assert {each.sureness for each in found} == {CERTAIN}
    circles = [rotated(ids(each)) for each in found if isinstance(each, Circle)]
    assert sorted(circles) == sorted(map(rotated, made.values()))
    wakes = {each.lock.address: ids(each) for each in found if isinstance(each, LostWake)}
    assert wakes == {each["address"]: sorted(each["ids"]) for each in lost.values()}
    assert len(found) == len(made) + len(lost)


@pytest.mark.parametrize(("version", "mode"), builds())
def test_a_lock_that_a_called_function_gave_back_is_held_no_longer(version: str, mode: str) -> None:
    with running("locks", version, mode) as target:
        goid = int(target.ask("given", "given").split()[1])
        found = dumped(target)
    (waiting,) = (goroutine for goroutine in found.goroutines if goroutine.goid == goid)
    assert waiting.stood_ns
    assert waiting.waits_for.lock
    assert waiting.waits_for.lock.is_locked
    assert waiting.waits_for.may_hold == ()
    assert stuck(found) == []


def whole(target: Target) -> Asleep:
    """The finding that all are asleep; there must be no other one but the circle."""
    (found,) = (each for each in stuck(dumped(target)) if not isinstance(each, Circle))
    assert isinstance(found, Asleep)
    return found


@pytest.mark.parametrize(
    ("version", "mode"),
    builds(*((minor, "plain") for minor in VERSIONS), ("1.19", "cgo"), (NEWEST, "cgo")),
)
def test_a_program_is_asleep_if_nothing_from_outside_can_wake_it(version: str, mode: str) -> None:
    with running("cgo" if mode == "cgo" else "asleep", version, mode) as target:
        found = whole(target)
    assert (found.sureness, found.foreign_threads) == (CERTAIN, 0)
    assert len(found.goroutines) == 3


@pytest.mark.parametrize(("version", "mode"), builds(("1.19", "cgo"), (NEWEST, "cgo")))
def test_a_thread_of_c_may_still_start_something(version: str, mode: str) -> None:
    with running("foreign", version, mode) as target:
        found = whole(target)
    assert (found.sureness, found.foreign_threads) == (LIKELY, 1)


@pytest.mark.parametrize("version", versions())
def test_a_timer_that_is_set_may_still_start_something(version: str) -> None:
    with running("timed", version) as target:
        found = dumped(target)
    assert [type(each) for each in stuck(found)] == [Circle]
    assert found.outside is None


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize(
    ("does", "accepting", "signals", "sleeping"), [("listening", 1, 0, 3), ("signalled", 0, 1, 2)]
)
def test_connections_and_signals_may_still_start_something(
    version: str, does: str, accepting: int, signals: int, sleeping: int
) -> None:
    with running(does, version) as target:
        found = whole(target)
    assert found.sureness is LIKELY
    numbers = len(found.accepting), len(found.for_signals), len(found.goroutines)
    assert numbers == (accepting, signals, sleeping)


@pytest.mark.parametrize("version", versions())
def test_a_program_that_is_idle_is_not_stuck(version: str) -> None:
    with running("idle", version) as target:
        found = dumped(target)
    assert sum(goroutine.stood_ns > 0 for goroutine in found.goroutines) == 5
    assert stuck(found) == []


def test_the_doctor_reports_what_is_stuck_with_all_stacks_and_an_exit_code() -> None:
    with running("locks") as target:
        target.ask("circles", "{")
        lost = json.loads(target.ask("lost", "{"))
        output = verb("doctor", "--pid", str(target.pid), "--apart", "200ms")
        also = verb("doctor", str(target.pid), "--json", "--apart", "200ms")
    assert output.code == ExitCode.DEADLOCK_FOUND
    assert re.fullmatch(r"Sampling process \d+ for 200 ms \.\.\.\n", output.stderr)
    assert f"Process {target.pid} (stuck, go1.27.3) can be profiled.\n" in output.stdout
    assert "Sampled 8 times within " in output.stdout
    assert "\nDeadlock: 3 goroutines wait for each other.\n" in output.stdout
    assert output.stdout.count("\n    Certain: ") == 7
    assert ": goroutine " in output.stdout
    for name in ("stockThenTill", "tillThenStaff", "staffThenStock", "readThenStock"):
        assert f"        main.(*shop).{name} " in output.stdout
    address = lost["mutex"]["address"]
    assert f"Lost wake: 2 goroutines wait for the sync.Mutex at {address:#x}, which is free.\n" in (
        output.stdout
    )
    read = json.loads(also.stdout)
    assert (also.code, read["exit_code"]) == (14, 14)
    (process,) = read["processes"]
    assert (process["pid"], process["samples"]) == (target.pid, 8)
    kinds = [(each["kind"], each["certain"]) for each in process["findings"]]
    assert kinds == [("deadlock", True)] * 3 + [("lost_wake", True)] * 4
    for each in process["findings"]:
        assert all(one["did_not_move"] and one["stack"] for one in each["goroutines"])


@pytest.mark.full
def test_the_doctor_finds_nothing_in_a_program_that_is_idle() -> None:
    with running("idle") as target:
        output = verb("doctor", "--pid", str(target.pid), "--apart", "100ms")
        both = verb("doctor", "--json", "--apart", "100ms", f"{target.pid},{os.getpid()}")
    assert output.code == ExitCode.OK
    assert re.fullmatch(r"Sampling process \d+ for 100 ms \.\.\.\n", output.stderr)
    assert "\nNo fault was found: no deadlock of locks, " in output.stdout
    assert "5 of 6 goroutines did not move." in output.stdout
    read = json.loads(both.stdout)
    assert both.code == read["exit_code"] == ExitCode.NOT_GO_PROGRAM
    first, second = read["processes"]
    assert first["findings"] == []
    assert second["exit_code"] == ExitCode.NOT_GO_PROGRAM


@pytest.mark.full
def test_the_doctor_reports_lock_waits_holders_and_leaks() -> None:
    with Target.start(program("oncall")) as target:
        facts = json.loads(target.output[0])
        target.ask("stuck", "stuck")
        output = verb("doctor", "--pid", str(target.pid), "--apart", "100ms", "--json")
        target.kill()
    assert output.code == ExitCode.OK, output.stdout
    (process,) = json.loads(output.stdout)["processes"]
    held = [each for each in process["findings"] if each["kind"] == "held_lock"]
    members = [{one["id"] for one in each["goroutines"]} for each in held]
    for name in ("lockShared", "lock", "write", "readLater"):
        assert {facts[name]["id"], facts[name]["holder"]} in members
    assert any(
        each["lines"][0] == f"Goroutine {facts['lockShared']['holder']} holds it: chan receive."
        for each in held
    )
    leaks = [each["title"] for each in process["findings"] if each["kind"] == "leak"]
    assert sorted(leaks) == [
        "Leak: 1 goroutine can never go on: chan receive (nil chan).",
        "Leak: 1 goroutine can never go on: chan send (nil chan).",
        "Leak: 1 goroutine can never go on: select (no cases).",
    ]


def test_options_for_processes_need_one() -> None:
    output = verb("doctor", "--apart", "1s")
    assert output.code == ExitCode.USAGE
    assert "need a process: add PID" in output.stderr


@pytest.mark.full
def test_dump_shows_what_is_stuck_first_and_in_json() -> None:
    with running("asleep") as target:
        output = verb("dump", "--pid", str(target.pid))
        read = json.loads(verb("dump", "--json", "--pid", str(target.pid)).stdout)
    top = output.stdout[: output.stdout.index("\n1 goroutine: ")]
    assert "\nAll goroutines are asleep: nothing can wake any of 3 goroutines.\n" in top
    assert "    Certain: no timer is set, no thread is in a system call or in C, " in top
    assert [(each["kind"], each["certain"]) for each in read["stuck"]] == [
        ("deadlock", True),
        ("asleep", True),
    ]
    assert read["deadlocks"] == [read["stuck"][0]["goroutines"]]
