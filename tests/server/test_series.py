"""The last minutes of processes that are served: a ring of moments, while a client asks for it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic, time
from typing import Any

import pytest

from ebpfprof.continuous.history import Window
from ebpfprof.continuous.manager import Manager
from ebpfprof.continuous.process import RecordedProcess
from ebpfprof.goruntime.open_processes import OpenProcess, OpenProcesses
from ebpfprof.profile.model import Frame, Location, Profile, Sample
from ebpfprof.profilers.waits.kinds import BLOCK
from ebpfprof.server import sampling
from ebpfprof.server import series as module
from ebpfprof.server.series import ProcessSeries
from tests.continuous.fakes import PID, FakeLive, FakeTarget, managed
from tests.continuous.loops import run, until
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.server.fakes import recorded
from tests.server.serving import DEADLINE_S, Server
from tests.targets_run import Target


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "CHECK_S", 0.001)
    monkeypatch.setattr(module, "INTERVAL_S", 0.0)
    monkeypatch.setattr(module, "SHARE", 1e9)


class Counting(OpenProcesses):
    """Counts how often it opened a process."""

    opened = 0

    @contextmanager
    def open(self, pid: int) -> Iterator[OpenProcess]:
        self.opened += 1
        with super().open(pid) as process:
            yield process


@asynccontextmanager
async def served(pid: int) -> AsyncIterator[tuple[Manager, RecordedProcess, ProcessSeries]]:
    """A process that is sampled whenever a client asked for it."""
    fake = FakeTarget(pid, kinds=())
    manager = managed(FakeLive({pid: fake}))
    process = manager.add_opened(fake)
    series = ProcessSeries(manager, Counting())
    running = asyncio.ensure_future(series.run())
    try:
        yield manager, process, series
    finally:
        manager.stopping.set()
        await running


def points(series: ProcessSeries, process: RecordedProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = series.as_json(process)["points"]
    return found


def test_a_program_that_is_not_go_has_its_cpu_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 5)

    async def work() -> None:
        async with served(os.getpid()) as (manager, process, series):
            await asyncio.sleep(0.05)
            assert not series._points  # no client has asked
            await until(lambda: len(points(series, process)) == 5)
            first, *_, last = points(series, process)
            assert last["cpu"]["used"] >= 0
            assert last["memory"]["resident_bytes"] > 1 << 20
            assert (last["goroutines"], last["collections"]) == (None, None)
            await until(lambda: points(series, process)[0]["time_s"] > first["time_s"])
            await until(lambda: points(series, process)[0]["time_s"] > last["time_s"])
            known = points(series, process)
            assert len(known) == 5
            after = series.as_json(process, after_s=known[2]["time_s"])["points"]
            assert after[:2] == known[3:]
            # Once the process has ended, its last minutes stay, however old they are.
            manager.note_ending(process, f"process {process.pid} ended")
            await until(lambda: process not in series._sampled)
            monkeypatch.setattr(module, "KEPT_S", -60.0)
            assert len(points(series, process)) == 5

    run(work())


def test_requests_are_those_of_windows_with_a_block_profile() -> None:
    ends = ("sync.(*Cond).Wait", "net/http.(*connReader).abortPendingRead")
    locations = tuple(Location(0, None, (Frame(name, "/src/x.go", 1),)) for name in ends)

    def block(count: int, variance: float = 0.0) -> Profile:
        sample = Sample(locations, (count, 1000), count_variance=variance)
        return BLOCK.make_profile([sample], [], time_ns=0, duration_ns=10**10)

    async def work() -> None:
        async with served(os.getpid()) as (_, process, series):
            now_s = time()
            profiles = ({"block": block(500)}, {"cpu": block(9)}, {"block": block(9, 81.0)})
            process.history.windows.extend(
                Window(now_s - 90 + 20 * at, now_s - 80 + 20 * at, one)
                for at, one in enumerate((*profiles, {"block": block(700)}))
            )
            first, last = series.as_json(process)["requests"]  # one is known too badly
            assert first == {"start_s": now_s - 90, "end_s": now_s - 80, "per_second": 50.0}
            assert last["per_second"] == 70.0
            # A client may have a later moment before the window is there.
            assert series.as_json(process, now_s - 20 + 9)["requests"] == [last]
            assert series.as_json(process, now_s - 20 + 11)["requests"] == []

    run(work())


def test_all_clients_share_one_reader() -> None:
    async def work() -> None:
        async with served(os.getpid()) as (_, process, series):
            clients = [points(series, process) for _ in range(5)]
            assert clients == [[]] * 5
            await until(lambda: len(points(series, process)) > 5)
            assert isinstance(series._processes, Counting)
            assert series._processes.opened == 1

    run(work())


def test_old_moments_are_left_out_and_the_pace_follows_the_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        async with served(os.getpid()) as (_, process, series):
            await until(lambda: len(points(series, process)) > 3)
            monkeypatch.setattr(module, "KEPT_S", -60.0)
            assert points(series, process) == []
            monkeypatch.setattr(module, "SHARE", 1e-9)
            await until(lambda: series._sampled[process].due_s > monotonic() + 600)

    run(work())


def test_the_reason_why_there_are_none_is_a_sentence() -> None:
    async def work() -> None:
        async with served(PID) as (_, process, series):
            series.as_json(process)
            await until(lambda: bool(series.as_json(process)["problem"]))
            assert str(PID) in series.as_json(process)["problem"]
            assert points(series, process) == []

    run(work())


def test_the_endpoint_needs_a_number_and_a_served_process() -> None:
    async def work() -> None:
        service, _ = await recorded(1)
        found = await service.client.ask(f"/api/targets/{PID}/series")
        assert found.json == {
            "interval_s": 0.0,
            "kept_s": 600.0,
            "problem": "",
            "points": [],
            "requests": [],
        }
        assert found.headers["cache-control"] == "no-store"
        assert (await service.client.ask(f"/api/targets/{PID}/series?after=x")).status == 400
        assert (await service.client.ask("/api/targets/7/series")).status == 404

    run(work())


@pytest.mark.full
def test_a_real_service_has_what_it_uses_without_a_probe() -> None:
    with (
        Target.start(program("services/hotlock")) as target,
        Server("--pid", str(target.pid)) as server,
    ):
        address = f"/api/targets/{target.pid}/series"
        locked: list[dict[str, Any]] = []
        until_s = monotonic() + DEADLINE_S
        while not locked:  # at the moment of a point, the lock may be free
            assert monotonic() < until_s
            found = json.loads(server.get(address).body)["points"]
            locked = [point for point in found[1:] if point["goroutines"]["lock"] > 1]
        assert not has_probes(target.pid)
    point = locked[0]
    assert 1 < point["seconds"] < 60
    assert abs(point["time_s"] - time()) < 60
    assert sum(point["goroutines"].values()) > 10
    assert point["cpu"]["used"] > 0
    assert point["cpu"]["gomaxprocs"] >= 1
    memory = point["memory"]
    assert 0 < memory["heap_bytes"] < memory["resident_bytes"] < 1 << 30
    assert memory["goal_bytes"] > 0
    assert point["collections"]["count"] >= 0
