"""Which processes have a recorder of last seconds, and what becomes of what it leaves.

The recorders here are scripts: tests/server/test_last_seconds.py has real ones.
"""

from __future__ import annotations

import asyncio
import sys
from ast import literal_eval
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from textwrap import indent
from unittest import mock

import pytest

from ebpfprof.continuous.process import RecordedProcess
from ebpfprof.process.process import TargetEnd
from ebpfprof.server import flight_recorders
from ebpfprof.server.flight_recorders import FlightRecorders, NoLastSecondsError
from ebpfprof.server.trace_child import TraceSettings
from tests.continuous.fakes import PID, FakeLive, FakeTarget, managed
from tests.continuous.loops import run, until

BEGINS = """
import os, sys
sys.path[:0] = {path!r}
from ebpfprof.system.channel import MessageChannel, ChannelError, failure
from ebpfprof.errors import *
channel = MessageChannel.to_parent(0)
asked = channel.receive().message
try:
    {rest}
except ChannelError:
    pass  # the server has closed its end
"""
RECORDS = """
channel.send({"recording": True})
while True:
    channel.receive()
    channel.send({"answer": {"result": ["a comment"]}}, data=b"ok")
"""
LEAVES = """
channel.send({"recording": True})
channel.send({"lost_ns": 5.0})
channel.send({"left": "go", "answer": {"result": []}}, data=b"lastonce")
"""
FAILS = """
channel.send({"failed": failure(AttachFailed("The kernel refused a probe."))})
"""
IS_HOPELESS = """
channel.send({"failed": failure(UnsupportedGo("It is too old."))})
"""
CRASHES = """
os._exit(3)
"""
BABBLES = """
os.write(0, b"ebpfprof: what is this? Not a frame.")
channel.receive()
"""
FORGETS = """
channel.send({"recording": True})
channel.receive()
channel.send({"answer": failure(EbpfprofError("It is too large."))})
channel.receive()
"""
ECHOES = """
channel.send({"recording": True})
request = channel.receive().message
channel.send({"answer": {"result": []}}, data=repr((asked, request)).encode())
"""


@dataclass(frozen=True)
class Scripted(TraceSettings):
    """Starts a script as the recorder of each process."""

    script: str = RECORDS

    def command(self) -> list[str]:
        rest = indent(self.script.strip(), "    ").strip()
        return [sys.executable, "-I", "-c", BEGINS.format(path=sys.path, rest=rest)]


@asynccontextmanager
async def keeping(
    script: str, *targets: FakeTarget
) -> AsyncIterator[tuple[FlightRecorders, list[RecordedProcess]]]:
    """The recorders of these processes, while the block runs; `script` is each of them."""
    manager = managed(FakeLive({target.pid: target for target in targets}))
    processes = [manager.add_opened(each) for each in targets]
    recorders = FlightRecorders(manager, Scripted(last_s=1.0, script=script))
    running = asyncio.ensure_future(recorders.run())
    try:
        yield recorders, processes
    finally:
        manager.stopping.set()
        await running


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorders, "CHECK_S", 0.005)


async def refusal(recorders: FlightRecorders, process: RecordedProcess) -> tuple[int, str]:
    with pytest.raises(NoLastSecondsError) as refused:
        await recorders.trace(process, "go", None)
    assert recorders.state(process) == (False, str(refused.value))
    return refused.value.status, str(refused.value)


def test_of_more_processes_than_that_the_later_ones_have_none_and_learn_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flight_recorders, "MOST", 1)

    async def work() -> None:
        targets = FakeTarget(PID), FakeTarget(PID + 1)
        async with keeping(RECORDS, *targets) as (recorders, (first, second)):
            await until(lambda: recorders.state(first)[0])
            file = (await recorders.trace(first, "go", None)).file
            assert (file.data, file.comments) == (b"ok", ("a comment",))
            status, why = await refusal(recorders, second)
            assert status == 503
            assert f"for 1 processes at most, now of {PID}. For this one:" in why
            assert why.endswith(f"\n    ebpfprof trace --last 5s {PID + 1}")
            # Its place is for the next one once it has ended.
            first.end("process ended")
            next(iter(recorders._recorded.values())).running.cancel()
            await until(lambda: recorders.state(second)[0])

    run(work())


def test_a_program_in_another_language_has_none() -> None:
    async def work() -> None:
        async with keeping(RECORDS, FakeTarget(PID, go_version=None)) as (recorders, (process,)):
            assert await refusal(recorders, process) == (404, "Only Go programs can be traced.")

    run(work())


def test_what_an_ended_process_leaves_is_kept_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with keeping(LEAVES, FakeTarget(PID)) as (recorders, (process,)):
            await until(lambda: recorders.state(process)[0])
            process.end(f"process {PID} ended")
            found = [await recorders.trace(process, "go", None) for _ in range(2)]
            assert [each.file.data for each in found] == [b"lastonce"] * 2
            assert found[0].end_s == found[1].end_s
            assert recorders.lost_ns(process) == 5
            manager = recorders._manager
            assert process in manager.kept
            monkeypatch.setattr(flight_recorders, "KEPT_S", 0.0)
            await until(lambda: process not in manager.kept)
            status, why = await refusal(recorders, process)
            assert status == 404
            assert why.startswith(f"Process {PID} ended, and its last seconds are not available")

    run(work())


@pytest.mark.parametrize(
    "limit",
    [
        mock.patch.object(flight_recorders, "MOST_LEFT", 2),
        mock.patch.object(flight_recorders, "MOST_LEFT_BYTES", 23),
    ],
    ids=["number", "bytes"],
)
def test_of_many_that_ended_the_last_ones_are_kept(limit: AbstractContextManager[int]) -> None:
    async def work() -> None:
        targets = [FakeTarget(PID + number) for number in range(4)]
        async with keeping(LEAVES, *targets) as (recorders, processes):
            await until(lambda: len(recorders._recorded) + len(recorders._left) == 4)
            for process in processes:
                process.end("process ended")
            await until(lambda: not recorders._recorded and len(recorders._left) == 2)
            assert set(recorders._left) == recorders._manager.kept

    with limit:
        run(work())


def test_one_that_fails_says_why_and_is_started_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        async with keeping(FAILS, FakeTarget(PID)) as (recorders, (process,)):
            why = "No trace was recorded. The kernel refused a probe. It is tried again every 30 s."
            await until(lambda: recorders.state(process) == (False, why))
            assert await refusal(recorders, process) == (500, why)
            first = recorders._recorded[process]
            first.retry_s = 0.0
            await until(lambda: recorders._recorded[process] is not first)
            await until(lambda: recorders._recorded[process].failure is not None)

    run(work())
    output = capsys.readouterr().err  # once, however often it fails
    assert output.count(f"The last seconds of process {PID}: No trace was recorded.") == 1


def test_a_trace_that_can_not_be_made_is_reported_and_the_recording_continues() -> None:
    async def work() -> None:
        async with keeping(FORGETS, FakeTarget(PID)) as (recorders, (process,)):
            await until(lambda: recorders.state(process)[0])
            with pytest.raises(Exception, match=r"No trace was made\. It is too large\."):
                await recorders.trace(process, "go", None)
            assert recorders.state(process) == (True, "")

    run(work())


def test_it_learns_what_to_record_and_what_is_asked_for() -> None:
    async def work() -> None:
        async with keeping(ECHOES, FakeTarget(PID)) as (recorders, (process,)):
            await until(lambda: recorders.state(process)[0])
            last = await recorders.trace(process, "go", 0.5)
            asked, request = literal_eval(last.file.data.decode())
            assert asked == {
                "pid": PID,
                "last_s": 1.0,
                "max_overhead": 0.0,
                "allow_unknown_go": False,
                "runtime": None,
            }
            assert request == {"format": "go", "last_s": 0.5}

    run(work())


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (CRASHES, "The ebpfprof that recorded it ended with status 3. It is tried again"),
        (BABBLES, "A frame is too large: "),
        (IS_HOPELESS, "It is too old."),
    ],
)
def test_one_that_ends_early_is_reported(script: str, why: str) -> None:
    async def work() -> None:
        async with keeping(script, FakeTarget(PID)) as (recorders, (process,)):
            reason = f"No trace was recorded. {why}"
            await until(lambda: recorders.state(process)[1].startswith(reason))
            is_hopeless = "tried again" not in recorders.state(process)[1]
            assert is_hopeless == (script == IS_HOPELESS)

    run(work())


def test_without_that_option_there_are_none() -> None:
    async def work() -> None:
        manager = managed(FakeLive({PID: FakeTarget(PID)}))
        process = manager.add_opened(FakeTarget(PID, ending=TargetEnd("it ended")))
        recorders = FlightRecorders(manager, TraceSettings())
        await recorders.run()
        status, why = await refusal(recorders, process)
        assert (status, why[:36]) == (404, "The last seconds are not kept here: ")

    run(work())
