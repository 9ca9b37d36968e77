"""`serve` finds goroutines that hang or leak, while a client asks for them or all the time."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from time import monotonic
from typing import Any

import pytest

from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.goruntime.waits import watch as watch_module
from ebpfprof.goruntime.waits.standing import HANGING
from ebpfprof.profile import hanging as hanging_module
from ebpfprof.server import sampling
from ebpfprof.server import watches as watches_module
from ebpfprof.server.watches import GoroutineWatches
from tests.continuous.fakes import FakeLive, FakeTarget, managed
from tests.continuous.loops import run, until
from tests.kernel.oncall_program import oncall
from tests.server.serving import DEADLINE_S, Server


def findings(server: Server, pid: int) -> list[dict[str, Any]]:
    answer = json.loads(server.get(f"/api/targets/{pid}/goroutines").body)
    assert answer["problem"] == ""
    found: list[dict[str, Any]] = answer["findings"]
    return found


def test_a_deadlock_is_found_while_a_client_asks() -> None:
    with oncall() as target, Server("--pid", str(target.target.pid)) as server:
        pid = target.target.pid
        facts = target.ask("deadlock")
        assert "target_goroutines{" not in server.get("/metrics").body.decode()
        until_s = monotonic() + DEADLINE_S
        while sum(finding["kind"] == "deadlock" for finding in findings(server, pid)) < 3:
            assert monotonic() < until_s
        found = findings(server, pid)
        metrics = server.get("/metrics").body.decode()
    assert [each["kind"] for each in found[:3]] == ["deadlock"] * 3
    assert all(each["certain"] for each in found[:3])
    itself = f"Deadlock: goroutine {facts['total']['id']} waits for itself."
    assert itself in [each["title"] for each in found]
    hanging = [each for each in found if each["kind"] == "hanging"]
    assert any("Mutex.Lock in main.transfer (locks.go:" in each["title"] for each in hanging)
    assert all(each["at_least_s"] >= 4.9 for each in hanging)
    assert all(each["stack"] for each in hanging)
    of_process = f'command="oncall",pid="{pid}"'
    assert f'ebpfprof_target_goroutines_suspect{{{of_process},reason="deadlocked"}} 5.0' in metrics
    assert f'ebpfprof_target_goroutines_suspect{{{of_process},reason="lost_wake"}} 0.0' in metrics
    assert f"ebpfprof_target_goroutines{{{of_process}}} " in metrics


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "CHECK_S", 0.001)
    monkeypatch.setattr(watches_module, "QUICK_S", (0.0, 0.0))
    monkeypatch.setattr(watches_module, "SLOW_S", (0.0, 0.0))
    monkeypatch.setattr(watch_module, "SOON_S", 0.0)
    monkeypatch.setattr(watch_module, "FULL_SHARE", 1e9)
    monkeypatch.setattr(watch_module, "QUICK_SHARE", 1e9)
    monkeypatch.setattr(hanging_module, "HANGS_NS", 20_000_000)
    monkeypatch.setattr(watch_module, "HANGING", HANGING._replace(ns=20_000_000))


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("continuous", [False, True])
def test_leaks_are_found_all_the_time_or_after_a_request(continuous: bool) -> None:
    async def work() -> None:
        with oncall() as target:
            fake = FakeTarget(target.target.pid, kinds=())
            manager = managed(FakeLive({fake.pid: fake}), continuous=continuous)
            process = manager.add_opened(fake)
            watches = GoroutineWatches(manager, OpenProcesses())

            def has_looked(times: int) -> bool:
                return watches.read(process)[0].samples >= times

            running = asyncio.ensure_future(watches.run())
            if not continuous:
                await asyncio.sleep(0.05)
                assert watches.known(process) is None  # no request has come
                watches.read(process)
            await until(lambda: watches.known(process) is not None)
            for _ in range(3):
                await asyncio.to_thread(target.target.ask, "leak 2", "leaked")
                before = watches.read(process)[0].samples
                await until(functools.partial(has_looked, before + 2))
            found, sampled_s, problem = watches.read(process)
            ((leak, count),) = [each for each in found.leaks if each[0].only_grows]
            assert (count, problem) == (6, "")
            assert leak.per_minute > 0
            assert sampled_s > 0
            manager.stopping.set()
            await running
            assert watches.known(process) is None

    run(work())


@pytest.mark.usefixtures("often")
def test_a_process_without_requests_is_watched_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        with oncall() as target:
            fake = FakeTarget(target.target.pid, kinds=())
            manager = managed(FakeLive({fake.pid: fake}))
            process = manager.add_opened(fake)
            watches = GoroutineWatches(manager, OpenProcesses())
            running = asyncio.ensure_future(watches.run())
            watches.read(process)
            await until(lambda: watches.known(process) is not None)
            monkeypatch.setattr(sampling, "LEASE_S", 0.0)
            await until(lambda: watches.known(process) is None)
            monkeypatch.setattr(sampling, "LEASE_S", 600.0)
            watches.read(process)
            await until(lambda: watches.known(process) is not None)
            target.target.kill()
            await until(lambda: "can no longer be read" in watches.read(process)[2])
            manager.note_ending(process, "process ended")
            manager.stopping.set()
            await running

    run(work())


def test_a_program_that_is_not_go_has_no_findings_and_no_problem() -> None:
    async def work() -> None:
        fake = FakeTarget(os.getpid(), kinds=())
        manager = managed(FakeLive({fake.pid: fake}))
        process = manager.add_opened(fake)
        watches = GoroutineWatches(manager, OpenProcesses())
        running = asyncio.ensure_future(watches.run())
        watches.read(process)
        await until(lambda: watches._sampled[process].due_s > monotonic() + 9)
        found, sampled_s, problem = watches.read(process)
        assert (found.samples, sampled_s, problem) == (0, 0.0, "")
        manager.stopping.set()
        await running

    run(work())
