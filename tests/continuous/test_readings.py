"""Profiles of any kind are read: of sums from the start, of a time only, or of a moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ebpfprof.continuous.manager import Manager
from ebpfprof.continuous.readings import NotRecordedError
from ebpfprof.errors import TargetGone
from ebpfprof.profile.handlers import HANDLER
from ebpfprof.profile.kind import Endpoint, ProfileKind
from ebpfprof.profile.model import Label, Profile
from ebpfprof.profilers.registry import registered
from tests.continuous.fakes import PID, FakeLive, FakeTarget, counts, made
from tests.continuous.loops import run
from tests.unit.made_up_kinds import NAPS


@pytest.fixture(params=[None, 30], ids=["sums from the start", "of a time only"])
def kind(request: pytest.FixtureRequest) -> Iterator[ProfileKind]:
    endpoint = Endpoint("nap", "Naps", seconds=request.param)
    with registered(replace(NAPS, endpoint=endpoint)) as kind:
        yield kind


@pytest.fixture
def moment() -> Iterator[ProfileKind]:
    with registered(replace(NAPS, is_moment=True)) as kind:
        yield kind


def of_kind(kind: ProfileKind) -> tuple[Manager, Any, FakeTarget]:
    target = FakeTarget(PID, kinds=("block", kind.name))
    manager = Manager(FakeLive({PID: target}), kinds=target.kinds)
    return manager, manager.add_opened(target), target


def test_a_reading_holds_what_followed_its_begin(kind: ProfileKind) -> None:
    async def work() -> None:
        manager, process, target = of_kind(kind)
        async with manager.leases.recording(process):
            target.work(5)
            since = await manager.readings.begin(process, kind.name)
            target.work(3)
            assert counts(await since()) == [3]
            target.work(1)
            assert counts(await since()) == [4]

    run(work())


def test_windows_hold_the_differences_of_sums(kind: ProfileKind) -> None:
    async def work() -> None:
        manager, process, target = of_kind(kind)
        async with manager.leases.recording(process):
            for seconds in (5, 3):
                target.work(seconds)
                await manager.readings.end_window(process)
        windows = [counts(w.profiles[kind.name]) for w in process.history.windows]
        assert [window[0] for window in windows[:2]] == [5, 3]
        whole = await manager.readings.between(process, kind.name, 0, float("inf"))
        assert counts(whole)[0] == 8
        assert process.history.totals[kind.name][0] == 8 + 1
        assert len(process.history.totals[kind.name]) == len(kind.sample_types)

    run(work())


def test_profiles_of_a_moment_are_neither_subtracted_nor_added(moment: ProfileKind) -> None:
    async def work() -> None:
        manager, process, target = of_kind(moment)
        async with manager.leases.recording(process):
            for seconds in (5, 3):
                target.work(seconds)
                await manager.readings.end_window(process)
        windows = [counts(w.profiles[moment.name])[0] for w in process.history.windows]
        assert windows[:2] == [5, 8]
        whole = await manager.readings.between(process, moment.name, 0, float("inf"))
        assert counts(whole)[0] == 8
        assert list(process.history.totals) == ["block"]

    run(work())


def test_since_last_holds_what_followed_the_last_call() -> None:
    async def work() -> None:
        manager, process, target = made()
        async with manager.leases.recording(process):
            target.work(4)
            assert counts(await manager.readings.since_last(process, "mutex")) == [4, 1]
            target.work(2)
            assert counts(await manager.readings.since_last(process, "block")) == [6, 1]
            assert counts(await manager.readings.since_last(process, "mutex")) == [2]

    run(work())


def test_reading_an_unrecorded_process_is_an_error() -> None:
    async def work() -> None:
        manager, process, _ = made()
        process.target = None
        with pytest.raises(TargetGone):
            await manager.readings.snapshot(process, "block")
        with pytest.raises(TargetGone):
            await manager.readings.begin(process, "cpu")
        with pytest.raises(NotRecordedError, match=f"Process {PID} was not recorded in that time"):
            await manager.readings.between(process, "block", 0, float("inf"))

    run(work())


@dataclass
class Renamed:
    """As ProcessHandlers, of a handler whose name changes."""

    name: str

    def labelled(self, profiles: Sequence[Profile]) -> list[Profile]:
        label = Label(HANDLER, self.name)
        return [
            replace(one, samples=tuple(replace(s, labels=(label,)) for s in one.samples))
            for one in profiles
        ]


def test_names_of_handlers_that_change_change_no_sums() -> None:
    """Profiles are added up and subtracted without the names, and have those of now."""

    def shown(profile: Profile) -> tuple[list[int], set[object]]:
        return counts(profile), {label.value for s in profile.samples for label in s.labels}

    async def work() -> None:
        given: list[tuple[list[int], set[object]]] = []
        manager, process, target = made()
        target.handlers = Renamed("main.get")
        agents, of_agent, recorded = made(
            on_window=lambda _, window: given.append(shown(window.profiles["block"]))
        )
        recorded.handlers = target.handlers
        async with manager.leases.recording(process), agents.leases.recording(of_agent):
            target.work(5)
            assert shown(await manager.readings.since_last(process, "mutex"))[1] == {"main.get"}
            await manager.readings.end_window(process)
            target.handlers.name = "main.get: GET /a"
            target.work(2)
            recorded.work(3)
            await agents.readings.end_window(of_agent)
            new = await manager.readings.since_last(process, "mutex")
            assert shown(new) == ([2], {"main.get: GET /a"})
            whole = await manager.readings.snapshot(process, "block")
            assert shown(whole) == ([7, 1], {"main.get: GET /a"})
        of_time = await manager.readings.between(process, "block", 0, float("inf"))
        assert shown(of_time)[1] == {"main.get: GET /a"}
        assert len(of_time.samples) == len(whole.samples)
        assert given[0] == ([3, 1], {"main.get: GET /a"})

    run(work())
