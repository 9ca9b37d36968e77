"""The agent as a service, on a live session without a kernel: reloads, ends, and what breaks it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ebpfprof.agent import service
from ebpfprof.agent.explaining import ProcessExplanation
from ebpfprof.agent.identity.pods import Pods
from ebpfprof.agent.log import Log
from ebpfprof.agent.service import Agent
from ebpfprof.agent.settings import RingSettings, Settings, SinkSettings
from ebpfprof.agent.settings_file import parsed
from ebpfprof.agent.sinks.folder import INDEX
from ebpfprof.continuous import manager
from ebpfprof.discovery.processes import GoProcess, Survey
from ebpfprof.errors import BadConfig
from ebpfprof.system.notify import Notifier
from tests.agent.node import DROP_DASH, RICH, Live
from tests.agent.test_pods import MadeUpSource
from tests.continuous.fakes import ALL_KINDS, FakeTarget
from tests.continuous.loops import run, until
from tests.targets_run import DEADLINE_S


class RecordingNotifier(Notifier):
    """The messages to a service manager."""

    def __init__(self) -> None:
        super().__init__("")
        self.lines: list[str] = []

    def _send(self, *lines: str) -> None:
        self.lines += lines

    def alive(self) -> None:
        self.lines.append("WATCHDOG=1")


@dataclass
class Run:
    """An agent that runs, with a file that the test writes."""

    agent: Agent
    live: Live
    notifier: RecordingNotifier
    said: list[str]
    work: asyncio.Future[None]
    there: list[GoProcess]
    reloads: int = 0
    file: Settings | BadConfig = RICH
    is_over: bool = False
    surveys: int = 0
    may_survey: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_survey.set()

    def join(self, process: GoProcess) -> None:
        """From now on this process is there."""
        self.there.append(process)
        self.live.targets[process.pid] = FakeTarget(process.pid, kinds=ALL_KINDS)

    def is_ready(self) -> bool:
        return self.agent.is_ready

    def is_right(self) -> bool:
        return self.agent.is_config_right

    async def reload(self, file: Settings | BadConfig) -> str:
        """What is said of a file."""
        before = len(self.said)
        self.file, self.reloads = file, self.reloads + 1
        await until(lambda: len(self.said) > before)
        return self.said[-1]


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "TICK_S", 0.005)
    monkeypatch.setattr(service, "ALIVE_S", 0.005)
    monkeypatch.setattr(service, "SURVEY_S", 0.01)
    monkeypatch.setattr(manager, "CHECK_S", 0.005)


def into(folder: Path, **more: Any) -> Settings:  # noqa: ANN401 - of each setting
    """Settings with a sink that writes into a folder."""
    ring = RingSettings(enabled=False)
    return replace(RICH, ring=ring, sinks=(SinkSettings("folder", "out", str(folder)),), **more)


@asynccontextmanager
async def running(settings: Settings, *found: GoProcess) -> AsyncIterator[Run]:
    """Run an agent until the block ends; then it is asked to end."""
    live = Live({each.pid: FakeTarget(each.pid, kinds=ALL_KINDS) for each in found})
    messages: list[str] = []
    there = list(found)

    def survey(**_: float) -> Survey:
        made.surveys += 1
        assert made.may_survey.wait(DEADLINE_S)
        return Survey(tuple(there), 0)

    table = cast("Any", SimpleNamespace(survey=survey))
    reported = RecordingNotifier()
    agent = Agent(
        settings,
        live,
        lambda *_: ProcessExplanation((), 0.0),
        lambda _: {},
        cast("Any", None),
        table,
        Log(messages.append),
        reported,
    )
    made = Run(agent, live, reported, messages, cast("Any", None), there)

    def load() -> Settings:
        if isinstance(made.file, BadConfig):
            raise made.file
        return made.file

    made.work = asyncio.ensure_future(
        agent.run(
            cast("Any", None),
            None,
            should_end=lambda: made.is_over,
            reloads=lambda: made.reloads,
            load=load,
            on_ready=lambda: None,
        )
    )
    await until(
        lambda: (agent.is_ready and agent.rounds.recorded == len(found)) or made.work.done()
    )
    yield made
    made.is_over = True
    await made.work


def windows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / INDEX).read_text().splitlines()]


def test_the_last_window_is_delivered_at_the_end(tmp_path: Path, shop: GoProcess) -> None:
    async def work() -> None:
        async with running(into(tmp_path), shop) as made:
            assert made.is_ready()
            made.live.targets[shop.pid].work(3)
            await asyncio.sleep(0.05)  # that many samples end no window
            (sink,) = made.agent.sinks.all
        assert not made.is_ready()
        (window,) = windows(tmp_path)
        assert window["pid"] == shop.pid
        assert sink.counters().sent == 1
        assert made.agent.sinks.all == []
        assert {"READY=1", "STOPPING=1", "WATCHDOG=1"} <= {*made.notifier.lines}

    run(work())


def test_newcomers_are_found_and_sources_of_pods_are_closed(
    tmp_path: Path, three: list[GoProcess]
) -> None:
    async def work() -> None:
        source = MadeUpSource()
        async with running(into(tmp_path), three[0]) as made:
            made.agent.pods = Pods("/nowhere", [source.opened()])
            made.join(three[1])
            await until(lambda: made.agent.rounds.recorded == 2)
            assert not source.is_closed
        assert source.is_closed

    run(work())


def test_a_round_ends_by_itself(tmp_path: Path, shop: GoProcess) -> None:
    async def work() -> None:
        async with running(into(tmp_path, window=0.1), shop) as made:
            await until(lambda: made.agent.rounds.figures.rounds > 2)
        found = windows(tmp_path)
        assert len(found) > 2
        assert [each["start_s"] for each in found[1:]] == [each["end_s"] for each in found[:-1]]

    run(work())


def test_what_can_change_while_it_runs_does(tmp_path: Path, shop: GoProcess) -> None:
    async def work() -> None:
        async with running(into(tmp_path), shop) as made:
            changed = into(tmp_path, node="n2", max_memory=1 << 30)
            pods = made.agent.pods
            fixed = replace(changed, max_processes=7, options={"hz": 19})
            assert await made.reload(fixed) == (
                "ebpfprof: The configuration was reloaded; restart the agent to change "
                "max_processes and options."
            )
            agent = made.agent
            assert agent.pods is not pods
            pods = agent.pods
            assert agent.settings == agent.rounds.settings == agent.roster.settings == changed
            (member,) = agent.roster.members.values()
            assert member.verdict.identity.node == "n2"
            for _ in range(2):
                wrong = await made.reload(BadConfig("a.toml:3: No."))
                assert wrong == "ebpfprof: The configuration is unchanged: a.toml:3: No."
                assert agent.settings == changed
                assert not made.is_right()
            no_ring = replace(
                changed, ring=replace(changed.ring, enabled=True, path="/nowhere/ring")
            )
            assert "The configuration is unchanged: /nowhere/ring" in await made.reload(no_ring)
            assert not made.is_right()
            assert agent.settings == changed
            assert await made.reload(changed) == "ebpfprof: The configuration was reloaded."
            assert made.is_right()
            await asyncio.sleep(0.03)  # a file is read once
            assert made.notifier.lines.count("RELOADING=1") == 5
            assert made.notifier.lines.count("READY=1") == 6
            assert agent.rounds.recorded == 1
            await made.reload(replace(changed, max_memory=2 << 30))
            assert agent.pods is pods

    run(work())


def test_one_that_opts_out_by_new_rules_is_left_at_once(tmp_path: Path, shop: GoProcess) -> None:
    async def work() -> None:
        async with running(into(tmp_path), shop) as made:
            await made.reload(into(tmp_path, rules=parsed(DROP_DASH, "a").rules))
            assert made.live.targets[shop.pid].users == 0
            await made.reload(into(tmp_path))
            await until(lambda: made.agent.rounds.recorded == 1)

    run(work())


def test_an_agent_that_can_not_notice_ends_does_not_continue(
    tmp_path: Path, shop: GoProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with running(into(tmp_path), shop) as made:
            monkeypatch.setattr(FakeTarget, "ending", broken, raising=False)
            await made.work

    broken = property(lambda _: (_ for _ in ()).throw(RuntimeError("nobody thought of it")))
    with pytest.raises(RuntimeError, match="nobody thought of it"):
        run(work())


def test_the_watchdog_is_not_fed_while_work_is_stuck(tmp_path: Path) -> None:
    async def work() -> None:
        async with running(into(tmp_path)) as made:
            agent = made.agent
            agent._worked_s = now_s = monotonic()
            await until(lambda: agent._worked_s > now_s)  # it works
            await until(lambda: "WATCHDOG=1" in made.notifier.lines)
            made.may_survey.clear()
            surveys = made.surveys
            await until(lambda: made.surveys > surveys)  # which does not end
            agent._worked_s -= service._STUCK_S
            before = made.notifier.lines.count("WATCHDOG=1")
            await asyncio.sleep(0.05)
            assert made.notifier.lines.count("WATCHDOG=1") == before
            made.may_survey.set()

    run(work())
