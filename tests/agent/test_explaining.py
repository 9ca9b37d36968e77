"""Which process is explained when, within the budget, and what is reported of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from ebpfprof.agent import explaining as module
from ebpfprof.agent.costs import FIRST_EXPLAINING_S
from ebpfprof.agent.explaining import ExplainingInTurn, ProcessExplanation
from ebpfprof.agent.log import Log
from ebpfprof.agent.service_sums import OTHERS, ServiceSums
from ebpfprof.agent.settings import Settings
from ebpfprof.discovery.processes import GoProcess
from ebpfprof.errors import EbpfprofError, KernelUnsupported, TargetGone
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.profile.model import Frame
from ebpfprof.profile.service import ServiceFindings, ServiceIdentity
from tests.agent.node import RICH, Node
from tests.continuous.loops import run, until

HOT = Finding(
    kind="hot_lock",
    level=Level.SLOW,
    title="Lock main.mu: 54 % of the time of requests.",
    lines=("Its holder: waits for 10.0.0.7:5432.",),
    share=0.54,
    error=0.02,
    place=Frame("main.get", "/src/main.go", 35),
)
LEAK = Finding(
    kind="goroutine_leak",
    level=Level.RISK,
    title="Leak: 12 goroutines do not end, 3 more a minute.",
    place=Frame("main.serve", "/src/main.go", 7),
)


@dataclass
class Finder:
    """Finds what the test says, and notes who was asked when."""

    answers: dict[int, Sequence[Finding] | Exception] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    waits: bool = False
    cpu_s: float = FIRST_EXPLAINING_S

    def __call__(
        self, pid: int, length_s: float, should_stop: Callable[[float], bool]
    ) -> ProcessExplanation:
        self.asked.append(pid)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        ended = threading.Event()
        while self.waits and not should_stop(0.0):
            ended.wait(0.005)
        self.at_once -= 1
        answer = self.answers.get(pid, ())
        if isinstance(answer, Exception):
            raise answer
        return ProcessExplanation(answer, self.cpu_s)


class Alternating(Finder):
    """Finds it the first time, and every other time from then on."""

    def __call__(
        self, pid: int, length_s: float, should_stop: Callable[[float], bool]
    ) -> ProcessExplanation:
        found = super().__call__(pid, length_s, should_stop)
        return found if len(self.asked) % 2 else found._replace(findings=())


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.001)
    monkeypatch.setattr(module, "SETTLED_S", 0.0)


OFTEN = replace(RICH, explain=0.001, max_node_overhead=1e9)


@dataclass
class Explained:
    """A node whose processes are explained, as fast as its settings allow."""

    node: Node
    finder: Finder
    explaining: ExplainingInTurn
    said: list[str]

    def findings(self, pid: int) -> list[ServiceFindings]:
        found = [each for each in self.node.given if isinstance(each, ServiceFindings)]
        return [each for each in found if each.pid == pid]


def explained(*found: GoProcess, finder: Finder, settings: Settings = OFTEN) -> Explained:
    node = Node(*found, settings=settings)
    said: list[str] = []
    explaining = ExplainingInTurn(node.rounds, finder, Log(said.append), node.given.append)
    return Explained(node, finder, explaining, said)


def test_processes_are_explained_in_turn_one_at_a_time(three: list[GoProcess]) -> None:
    async def work() -> None:
        made = explained(*three, finder=Finder())
        await made.node.begin()
        running = asyncio.ensure_future(made.explaining.run())
        await until(lambda: len(made.finder.asked) >= 6)
        made.explaining.stop()
        await running
        assert {*made.finder.asked[:3]} == {each.pid for each in three}
        assert made.finder.asked[3:6] == made.finder.asked[:3]
        assert made.finder.most_at_once == 1
        assert made.node.rounds.figures.explanations >= 5

    run(work())


def test_the_time_between_explanations_follows_settings_and_budget(three: list[GoProcess]) -> None:
    async def work() -> None:
        made = explained(*three, finder=Finder(), settings=replace(RICH, explain=600))
        await made.node.begin()
        asked = made.finder.asked
        running = asyncio.ensure_future(made.explaining.run())
        await until(lambda: len(asked) == 1)
        await asyncio.sleep(0.05)
        assert len(asked) == 1
        made.explaining._began_s -= 199
        await asyncio.sleep(0.05)
        assert len(asked) == 1
        made.explaining._began_s -= 1  # a third of ten minutes, for three processes
        await until(lambda: len(asked) == 2)
        # With little budget it takes longer.
        rounds = made.node.rounds
        rounds.settings = replace(rounds.settings, max_node_overhead=0.001)
        needed_s = FIRST_EXPLAINING_S / (0.00001 * rounds.processors / 4)
        made.explaining._began_s -= needed_s - 1
        await asyncio.sleep(0.05)
        assert len(asked) == 2
        made.explaining._began_s -= 1
        await until(lambda: len(asked) == 3)
        made.explaining.stop()
        await running

    run(work())


def test_none_begins_while_the_budget_is_overspent_or_if_the_settings_say_never(
    shop: GoProcess,
) -> None:
    async def work() -> None:
        made = explained(shop, finder=Finder())
        await made.node.begin()
        rounds = made.node.rounds
        rounds.settings = replace(rounds.settings, explain=0.0)
        running = asyncio.ensure_future(made.explaining.run())
        await asyncio.sleep(0.05)
        assert made.finder.asked == []
        rounds.scheduler.left = 1e-9  # less than an explanation costs
        rounds.settings = replace(rounds.settings, explain=0.001)
        await until(lambda: made.finder.asked == [shop.pid])
        assert not rounds.has_budget
        await asyncio.sleep(0.05)
        assert made.finder.asked == [shop.pid]
        made.explaining.stop()
        await running

    run(work())


def test_what_explanations_cost_is_no_cost_of_recording(shop: GoProcess) -> None:
    async def work() -> None:
        made = explained(shop, finder=Finder())
        await made.node.begin()
        rounds = made.node.rounds
        await made.node.turn()
        before = rounds.costs.own_each
        rounds._cpu_s -= FIRST_EXPLAINING_S  # so much was spent
        rounds.note_explanation()
        rounds._begun_s = time.monotonic() - 1
        rounds._spent()
        assert rounds.costs.own_each < before + 0.2 * FIRST_EXPLAINING_S

    run(work())


def test_the_cost_of_an_explanation_is_that_of_the_last_ones(shop: GoProcess) -> None:
    async def work() -> None:
        made = explained(shop, finder=Finder(cpu_s=4.0))
        await made.node.begin()
        rounds = made.node.rounds
        before_s = rounds.explanation_s(0.25)
        running = asyncio.ensure_future(made.explaining.run())
        await until(lambda: rounds.figures.explanations >= 8)
        made.explaining.stop()
        await running
        assert rounds.costs.explaining_s == pytest.approx(4.0, rel=0.02)
        assert rounds.explanation_s(0.25) == pytest.approx(
            before_s * 4.0 / FIRST_EXPLAINING_S, rel=0.02
        )

    run(work())


def test_what_only_one_explanation_lacks_is_neither_gone_nor_new(shop: GoProcess) -> None:
    async def work() -> None:
        finder = Alternating({shop.pid: (HOT,)})
        made = explained(shop, finder=finder)
        await made.node.begin()
        running = asyncio.ensure_future(made.explaining.run())
        await until(lambda: len(made.findings(shop.pid)) >= 6)
        (lasting,) = made.explaining.findings
        made.explaining.stop()
        await running
        assert made.said == [f"ebpfprof: dash (pid {shop.pid}): {HOT.title}"]
        assert [one.subject for one in lasting.findings] == [module.service_finding(HOT, 0).subject]
        first, second, third, *_ = made.findings(shop.pid)
        assert second.findings == ()  # what is given is what was found
        assert third.findings[0].since_s == first.findings[0].since_s

    run(work())


def test_a_change_is_reported_once_and_each_explanation_is_given(shop: GoProcess) -> None:
    async def work() -> None:
        finder = Finder({shop.pid: (HOT, LEAK)})
        made = explained(shop, finder=finder)
        await made.node.begin()
        running = asyncio.ensure_future(made.explaining.run())
        await until(lambda: len(made.findings(shop.pid)) >= 2)
        more = replace(HOT, title="Lock main.mu: 61 ± 4 % of the time of requests.", share=0.61)
        finder.answers[shop.pid] = (more,)
        await until(lambda: len(made.said) == 3)
        assert made.findings(shop.pid)[-1].findings[0].share == 0.61
        assert [each.findings for each in made.explaining.findings] == [
            made.findings(shop.pid)[-1].findings
        ]
        finder.answers[shop.pid] = ()
        await until(lambda: len(made.said) == 4)
        assert made.findings(shop.pid)[-1].findings == ()
        made.explaining.stop()
        await running
        named = f"dash (pid {shop.pid})"
        assert made.said == [
            f"ebpfprof: {named}: Lock main.mu: 54 % of the time of requests.",
            f"ebpfprof: {named}: Leak: 12 goroutines do not end, 3 more a minute.",
            f"ebpfprof: {named}: no longer: Leak: 12 goroutines do not end, 3 more a minute.",
            f"ebpfprof: {named}: no longer: Lock main.mu: 61 ± 4 % of the time of requests.",
        ]
        first, second = made.findings(shop.pid)[:2]
        assert (first.identity.service, first.command) == ("dash", shop.name)
        assert first.process_start_ns == shop.started_ns
        (hot, leak), (again, _) = first.findings, second.findings
        assert (hot.kind, hot.level, hot.share, hot.error) == ("hot_lock", "slow", 0.54, 0.02)
        assert (hot.title, hot.lines, hot.place) == (HOT.title, HOT.lines, "main.get (main.go:35)")
        assert leak.subject == "main.serve (main.go:7)"
        assert hot.since_s == again.since_s == pytest.approx(first.time_s - module.LENGTH_S)
        assert second.time_s > first.time_s
        last = [each for each in made.findings(shop.pid) if each.findings][-1]
        assert last.findings[0].since_s == hot.since_s

    run(work())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TargetGone("It ended."), []),
        (KernelUnsupported("No BPF here."), ["could not be explained: No BPF here."]),
        (ZeroDivisionError("x"), ["could not be explained: ZeroDivisionError: x"]),
    ],
    ids=["ended", "typed", "unexpected"],
)
def test_one_that_can_not_be_explained_holds_up_no_other(
    three: list[GoProcess], error: EbpfprofError, said: list[str]
) -> None:
    async def work() -> None:
        bad, *_, good = three
        made = explained(bad, good, finder=Finder({bad.pid: error, good.pid: (HOT,)}))
        await made.node.begin()
        running = asyncio.ensure_future(made.explaining.run())
        await until(lambda: len(made.findings(good.pid)) >= 2)
        made.explaining.stop()
        await running
        assert made.findings(bad.pid) == []
        problems = [line for line in made.said if "could not" in line]
        assert problems[:1] == [f"ebpfprof: Process {bad.pid} {each}" for each in said]

    run(work())


def test_it_ends_at_once_and_reports_nothing_half_done(shop: GoProcess) -> None:
    async def work() -> None:
        made = explained(shop, finder=Finder({shop.pid: (HOT,)}, waits=True))
        await made.node.begin()
        running = asyncio.ensure_future(made.explaining.run())
        await until(lambda: made.finder.asked == [shop.pid])
        made.explaining.stop()
        await running
        assert made.findings(shop.pid) == []
        assert made.explaining.findings == []

    run(work())


def test_a_process_that_just_started_is_not_explained_and_one_that_ended_is_forgotten(
    shop: GoProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLED_S", 60.0)

    async def work() -> None:
        made = explained(shop, finder=Finder({shop.pid: (HOT,)}))
        await made.node.begin()
        running = asyncio.ensure_future(made.explaining.run())
        await asyncio.sleep(0.05)
        assert made.finder.asked == []
        (process,) = made.node.recorded.values()
        process.since_s -= 60
        await until(lambda: len(made.explaining.findings) == 1)
        made.node.found = []
        made.node.roster.survey()
        await until(lambda: made.explaining.findings == [])
        assert not any("no longer" in line for line in made.said)
        made.explaining.stop()
        await running

    run(work())


def test_names_of_services_are_as_bounded_as_elsewhere_in_metrics() -> None:
    shop, other = ServiceIdentity("shop", "prod"), ServiceIdentity("api")
    none, one = ServiceSums(0), ServiceSums(1)
    for sums in (none, one):
        sums.note(shop, (0.0, 1.0), {}, {})
        sums.note(other, (0.0, 1.0), {}, {})
    assert none.named(shop) is None
    assert one.named(shop) == ("shop", "prod")
    assert one.named(other) == OTHERS
