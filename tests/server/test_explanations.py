"""What is wrong with a process, on request: parameters, and what can't be explained."""

from __future__ import annotations

import pytest

from tests.continuous.fakes import PID
from tests.continuous.loops import run
from tests.server.fakes import recorded


@pytest.mark.parametrize("seconds", ["0", "-1", "301", "x", "1.5"])
def test_the_time_must_be_a_number_of_seconds(seconds: str) -> None:
    async def work() -> None:
        service, _ = await recorded(1)
        for path in ("/debug/explain", f"/api/targets/{PID}/explain"):
            answer = await service.client.ask(f"{path}?seconds={seconds}")
            assert answer.status == 400
            assert "seconds must be a number from 1 to 300." in answer.body.decode()

    run(work())


def test_another_process_is_not_explained() -> None:
    async def work() -> None:
        service, _ = await recorded(1)
        for path in ("/proc/7/debug/explain", "/api/targets/7/explain"):
            answer = await service.client.ask(path)
            assert answer.status == 404
            assert "Process 7 is not served here" in answer.body.decode()

    run(work())


def test_a_process_that_can_not_be_read_is_an_error_in_a_sentence() -> None:
    async def work() -> None:
        service, _ = await recorded(1)
        for path in ("/debug/explain", f"/api/targets/{PID}/explain"):
            answer = await service.client.ask(f"{path}?seconds=1")
            assert answer.status in (404, 500)
            assert str(PID) in answer.body.decode()

    run(work())
