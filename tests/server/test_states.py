"""What the page says of a process: one state at a time, from the first request to the end."""

from __future__ import annotations

import pytest

from ebpfprof.process.process import TargetEnd
from ebpfprof.server import page_api
from tests.continuous.fakes import PID, FakeTarget, go_process
from tests.continuous.loops import run, until
from tests.server.fakes import Service

TIMELINE = f"/api/targets/{PID}/timeline"


async def state_of(service: Service) -> tuple[str, str]:
    (found,) = (await service.client.ask("/api/targets")).json["targets"]
    return found["state"], found["says"]


def test_a_process_has_one_state_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_api, "FRESH_S", 0.0)

    async def work() -> None:
        target = FakeTarget(PID)
        service = await Service.of()
        service.live.targets[PID] = target
        process = service.manager.add_found(go_process(PID))
        assert await state_of(service) == ("idle", "Not recording.")
        # Its symbols are read: the session opens it.
        service.live.opens.clear()
        first = (await service.client.ask(TIMELINE)).json
        assert (first["state"], first["says"]) == ("reading", "Reading the program's symbols.")
        await until(lambda: service.live.adds == 1)
        assert (await state_of(service))[0] == "reading"
        service.live.gate.clear()
        service.live.opens.set()
        await until(lambda: target.begun == 1)
        assert await state_of(service) == ("attaching", "Attaching to the process.")
        service.live.gate.set()
        await until(lambda: process.is_recording)
        assert (await state_of(service))[1].startswith("Recording: the first numbers come")
        await service.client.ask(f"/api/targets/{PID}/profile")
        assert await state_of(service) == ("recording", "Recording.")
        target.ending = TargetEnd(f"process {PID} ended")
        await service.manager._check(process)
        state, says = await state_of(service)
        assert state == "ended"
        assert says == f"Process {PID} ended. What was recorded until then is still here."
        await service.manager.stop()

    run(work())


def test_after_a_failed_begin_nothing_is_reported_to_begin() -> None:
    async def work() -> None:
        service = await Service.of()
        process = service.manager.add_found(go_process(PID))
        await service.client.ask(TIMELINE)  # the fake session knows no such process
        await until(lambda: process.ending is not None)
        assert (await state_of(service))[0] == "ended"

    run(work())


def test_health_needs_no_token_and_readiness_counts_processes() -> None:
    async def work() -> None:
        target = FakeTarget(PID)
        service = await Service.of(target, continuous=True)
        await until(lambda: service.manager.processes[0].is_recording)
        ready = await service.client.ask("/readyz")
        assert (ready.status, ready.body) == (
            200,
            b"ready: 1 of 1 running processes recorded now\n",
        )
        other = service.manager.add_found(go_process(PID + 1))
        await until(lambda: other.ending is not None)
        assert (await service.client.ask("/readyz")).status == 200  # those that ended don't count
        await service.manager.stop()
        late = await service.client.ask("/readyz")
        assert (late.status, late.body) == (503, b"Not ready: the server ends.\n")

    run(work())


def test_without_continuous_it_is_ready_to_record_when_asked() -> None:
    async def work() -> None:
        service = await Service.of(FakeTarget(PID))
        assert (await service.client.ask("/readyz")).body.startswith(b"ready: 0 of 1 ")
        empty = await Service.of()
        answer = await empty.client.ask("/readyz")
        assert (answer.status, answer.body) == (
            503,
            b"Not ready: 0 of 0 running processes recorded now.\n",
        )

    run(work())
