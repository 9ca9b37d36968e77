"""Probes are in a process as long as somebody wants it recorded, and no longer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from ebpfprof.continuous import manager as recorder_module
from ebpfprof.continuous.manager import Recorder
from ebpfprof.continuous.process import Served
from ebpfprof.errors import (
    AttachFailed,
    EbpfprofError,
    NoSuchProcess,
    NotGoProgram,
    TargetGone,
    UnsupportedTarget,
)
from ebpfprof.process.process import TargetEnd
from tests.server.fakes import (
    ALL_KINDS,
    PID,
    FakeDiscovery,
    FakeLive,
    FakeTarget,
    process,
    until,
)


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "LOOK_S", 0.005)


async def never() -> None:
    await asyncio.Event().wait()


def made(**options: Any) -> tuple[Recorder, Served, FakeTarget]:  # noqa: ANN401
    target = FakeTarget(PID)
    recorder = Recorder(FakeLive({PID: target}), kinds=ALL_KINDS, **options)
    return recorder, recorder.serve_opened(target), target


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_several_at_once_and_the_last_one_takes_the_probes_out() -> None:
    async def work() -> None:
        recorder, served, target = made()
        async with recorder.recording(served):
            async with recorder.recording(served):
                assert (target.users, target.starts) == (1, 1)
            assert target.users == 1
            target.work(3)
        assert target.users == 0
        (window,) = served.windows.kept
        assert window.profiles["block"].samples[0].values[0] == 3

    run(work())


def test_a_lease_runs_out() -> None:
    async def work() -> None:
        recorder, served, target = made()
        running = asyncio.ensure_future(recorder.run())
        recorder.lease(served, 600)
        await until(lambda: target.users == 1)
        recorder.lease(served, 0)  # does not make it shorter
        assert served.leased_until_s > time.monotonic() + 500
        served.leased_until_s = 0
        await until(lambda: target.users == 0)
        recorder.lease(served, 600)
        await until(lambda: target.users == 1)
        await recorder.stop()
        await running
        assert (target.users, target.starts) == (0, 2)

    run(work())


@pytest.mark.parametrize("moment", ["while it starts", "while it is recorded"])
def test_a_request_that_is_cancelled_leaves_no_probe(moment: str) -> None:
    async def work() -> None:
        target = FakeTarget(PID)
        live = FakeLive({PID: target})
        recorder = Recorder(live, kinds=ALL_KINDS)
        served = recorder.serve_opened(target)

        async def request() -> None:
            async with recorder.recording(served):
                await never()

        if moment == "while it starts":
            live.gate.clear()
        task = asyncio.ensure_future(request())
        await until(lambda: target.begun == 1)
        if moment == "while it is recorded":
            await until(lambda: served.users == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        live.gate.set()
        await until(lambda: target.starts == 1)
        await recorder.stop()
        assert (served.users, target.users) == (0, 0)

    run(work())


def test_waiting_ends_when_the_client_leaves_the_process_goes_or_the_server_ends() -> None:
    async def work() -> None:
        recorder, served, _ = made()
        left = asyncio.Event()

        async def client_left() -> None:
            await left.wait()

        client = asyncio.ensure_future(recorder.wait(served, 1e300, client_left))
        await asyncio.sleep(0)
        left.set()
        assert not await client
        assert await recorder.wait(served, 0, never)
        other = asyncio.ensure_future(recorder.wait(served, 600, never))
        await asyncio.sleep(0)
        recorder.note_ending(served, "process 1 ended")
        assert await other
        another, served, _ = made()
        third = asyncio.ensure_future(another.wait(served, 600, never))
        await asyncio.sleep(0)
        await another.stop()
        assert await third

    run(work())


def test_windows_are_made_in_steps_while_it_is_recorded() -> None:
    async def work() -> None:
        recorder, served, target = made(interval_s=0.01, continuous=True)
        running = asyncio.ensure_future(recorder.run())
        await until(lambda: target.users == 1)
        target.work(2)

        # Two, and the one that there is from the start.
        await until(lambda: served.windows.totals.get("cpu", [0])[0] == 3)
        await until(lambda: len(served.windows.kept) >= 5)
        await recorder.stop()
        await running
        counts = [
            sum(sample.values[0] for sample in window.profiles["block"].samples)
            for window in served.windows.kept
        ]
        assert sum(counts) == 3  # two, and the one that there is from the start
        assert all(
            a.end_s == b.start_s
            for a, b in zip(
                list(served.windows.kept)[:-1], list(served.windows.kept)[1:], strict=True
            )
        )

    run(work())


def test_a_process_that_went_is_told_and_forgotten_later() -> None:
    async def work() -> None:
        recorder, served, target = made(interval_s=0.01, retention_s=0.05, continuous=True)
        running = asyncio.ensure_future(recorder.run())
        await until(lambda: target.users == 1)
        target.work(4)
        target.ending = TargetEnd("process 7 ended")
        await served.gone.wait()
        assert served.ending == "process 7 ended"
        assert not served.is_recording
        assert served.windows.totals["block"][0] == 5
        with pytest.raises(TargetGone, match="process 7 ended"):
            async with recorder.recording(served):
                pass
        await until(lambda: target.is_removed)
        await until(lambda: not served.windows.kept)
        assert recorder.find(PID) is served  # it was named
        await recorder.stop()
        await running

    run(work())


def test_of_found_processes_that_went_the_last_ones_with_a_past_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many come and go: what is held follows what is alive."""
    monkeypatch.setattr(recorder_module, "MAX_GONE", 2)

    async def work() -> None:
        live = FakeLive()
        recorder = Recorder(live, kinds=ALL_KINDS)
        running = asyncio.ensure_future(recorder.run())
        named = recorder.serve_opened(FakeTarget(PID))
        recorder.note_ending(named, "it went")
        for pid in range(1, 61):
            found = recorder.serve_found(process(pid))
            if pid % 12 == 0:  # it is recorded meanwhile
                live.targets[pid] = FakeTarget(pid)
                async with recorder.recording(found):
                    assert await recorder.snapshot(found, "block")
            recorder.note_ending(found, f"process {pid} ended")
        await until(lambda: len(recorder.served) == 3)
        assert [each.pid for each in recorder.served] == [48, 60, PID]
        assert all(target.is_removed for target in live.targets.values())
        for each in recorder.served[:2]:
            assert each.windows.kept
            assert (each.windows.sums, each.live, each.last_sent) == ({}, None, {})
        await recorder.stop()
        await running

    run(work())


def test_who_still_asks_of_a_process_that_went_gets_it_and_then_its_room_is_free() -> None:
    """Also if its number is used by another process by then."""

    async def work() -> None:
        recorder, served, target = made(continuous=True)
        await until(lambda: target.users == 1)
        async with recorder.recording(served):
            target.work(4)
            recorder.note_ending(served, f"process {PID} ended")
            recorder.live = FakeLive({PID: FakeTarget(PID, name="other")})
            other = recorder.serve_found(process(PID))
            await until(lambda: other.users == 1)
            assert not target.is_removed
            profile = await recorder.snapshot(served, "block")
            assert profile.samples[0].values[0] == 4
        await until(lambda: target.is_removed)
        assert (served.users, served.name) == (0, "shop")
        assert not other.ending
        await recorder.stop()

    run(work())


def test_a_lease_that_could_not_begin_ends_for_nobody_else() -> None:
    async def work() -> None:
        recorder, served, target = made()
        running = asyncio.ensure_future(recorder.run())
        async with recorder.recording(served):
            async with served.lock:
                recorder.lease(served, 600)
                recorder.note_ending(served, f"process {PID} ended")
                await asyncio.sleep(0.05)
            await until(lambda: not served.is_leased)
            await asyncio.sleep(0.05)
            assert served.users == 1
        assert served.users == 0
        await until(lambda: target.is_removed)
        await recorder.stop()
        await running

    run(work())


def test_what_was_found_is_opened_when_somebody_asks() -> None:
    async def work() -> None:
        target = FakeTarget(PID, name="opened")
        recorder = Recorder(FakeLive({PID: target}), kinds=ALL_KINDS, interval_s=0.01)
        served = recorder.serve_found(process(PID))
        assert (served.live, served.kinds, served.name) == (None, ALL_KINDS, "shop")
        async with recorder.recording(served):
            assert (served.live, served.name) == (target, "opened")

    run(work())


@pytest.mark.parametrize(
    "refusal",
    [
        NoSuchProcess("It ended."),
        UnsupportedTarget("It is a zombie."),
        NotGoProgram("It is a shell."),
        TargetGone("It has just become something else."),
        None,
    ],
)
def test_what_was_found_and_is_no_more_has_gone(
    refusal: EbpfprofError | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended, or has become another program, between the survey and the first request."""

    async def work() -> None:
        shell = FakeTarget(PID, kinds=("cpu",), go_version=None)
        live = FakeLive({PID: shell}, refusal=refusal)
        recorder = Recorder(live, kinds=ALL_KINDS)
        for _ in range(2):
            served = recorder.serve_found(process(PID))
            with pytest.raises(TargetGone):
                async with recorder.recording(served):
                    pass
            assert served.ending == f"process {PID} ended or replaced itself by another program"
            recorder.lease(served, 60)
        other = recorder.serve_found(process(PID))
        recorder.lease(other, 60)
        await until(lambda: other.ending is not None and not other.is_leased)
        assert other.problem is None
        await recorder.stop()
        assert (served.users, shell.starts, shell.is_removed) == (0, 0, refusal is None)

    run(work())
    assert capsys.readouterr().err == ""


def test_continuous_is_tried_again_and_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        target = FakeTarget(PID)
        live = FakeLive({PID: target}, refusal=AttachFailed("There is no room."))
        recorder = Recorder(live, kinds=ALL_KINDS, interval_s=0.01, continuous=True)
        running = asyncio.ensure_future(recorder.run())
        recorder.serve_found(process(PID))
        await until(lambda: live.adds >= 3)
        live.refusal = None
        await until(lambda: target.users == 1)
        await recorder.stop()
        await running

    run(work())
    assert capsys.readouterr().err == "ebpfprof: There is no room.\n"


def test_all_go_processes_are_followed() -> None:
    async def work() -> None:
        targets = {pid: FakeTarget(pid) for pid in (1, 2, 3, 4)}
        recorder = Recorder(FakeLive(targets), kinds=ALL_KINDS)
        here = {"container": "abc"}
        discovery = FakeDiscovery(
            recorder,
            process(1, **here),
            process(2, **here, supported=False, why_not="too old"),
            process(3, container="xyz"),
            process(5),
            follows=True,
            containers=["ab"],
            capacity=2,
        )

        def served() -> list[int]:
            return [each.pid for each in recorder.served if each.ending is None]

        await discovery.look()
        assert served() == [1]
        assert [(each.pid, each.why_not) for each in discovery.unserved] == [(2, "too old")]
        discovery.found = [process(pid, **here) for pid in (1, 3, 4)]
        await discovery.look()
        assert served() == [1, 3]
        assert [each.pid for each in discovery.unserved] == [4]
        discovery.found = [process(pid, **here) for pid in (3, 4)]
        await discovery.look()
        gone = recorder.find(1)
        assert gone is not None
        assert gone.ending == "process 1 ended"
        assert served() == [3, 4]
        # The number is used anew.
        discovery.found = [process(pid, **here, command="anew") for pid in (1, 4)]
        await discovery.look()
        assert served() == [1, 4]
        await recorder.stop()

    run(work())
