"""A kind of profiles that is only registered has its endpoint, its words and its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.kind import Endpoint, Metric, ProfileKind
from ebpfprof.profilers.registry import registered
from ebpfprof.server import pprof_endpoints
from ebpfprof.server.metrics import endpoint
from ebpfprof.server.page_api import described_kind
from tests.continuous.fakes import PID, FakeTarget
from tests.continuous.loops import run, until
from tests.server.fakes import Answer, Service
from tests.unit.made_up_kinds import NAPS


@pytest.fixture
def kind() -> Iterator[ProfileKind]:
    with registered(NAPS) as kind:
        yield kind


async def recorded(kind: ProfileKind) -> tuple[Service, FakeTarget]:
    """A process with this kind and the block profile, and a window of four events and one."""
    target = FakeTarget(PID, kinds=("block", kind.name))
    service = await Service.of(target)
    async with service.manager.leases.recording(service.manager.processes[0]):
        target.work(4)
    return service, target


def values(answer: Answer) -> list[tuple[int, ...]]:
    assert answer.status == 200, answer.body
    return sorted(sample.values for sample in pprof.decode(answer.body).samples)


def test_endpoints_answer_with_sums_and_deltas(
    kind: ProfileKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pprof_endpoints, "FIRST_S", 0)

    async def work(kind: ProfileKind) -> None:
        service, target = await recorded(kind)
        sums = await service.client.ask("/debug/pprof/nap")
        assert values(sums) == [(1, 10, 10), (4, 4000, 4000)]
        assert sums.headers["content-disposition"] == 'attachment; filename="nap"'
        assert values(await service.client.ask("/debug/pprof/delta_nap")) == values(sums)
        target.work(2)
        assert values(await service.client.ask("/debug/pprof/delta_nap")) == [(2, 2000, 2000)]
        await service.manager.stop()

    run(work(kind))


@pytest.mark.parametrize("head", [(), ("naps:",)])
def test_debug_answers_are_text_for_a_kind_with_a_text(
    head: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pprof_endpoints, "FIRST_S", 0)

    async def work(kind: ProfileKind) -> None:
        service, _ = await recorded(kind)
        answer = await service.client.ask("/debug/pprof/nap?debug=1")
        if head:
            assert answer.body.startswith(b"naps:\n4000 4000 4 @")
        else:
            assert values(answer) == [(1, 10, 10), (4, 4000, 4000)]
        await service.manager.stop()

    with registered(replace(NAPS, endpoint=Endpoint("nap", "Naps", text=head))) as kind:
        run(work(kind))


def test_a_request_records_for_the_seconds_of_the_endpoint() -> None:
    async def work(kind: ProfileKind) -> None:
        service, target = await recorded(kind)
        asking = asyncio.ensure_future(service.client.ask("/debug/pprof/nap?seconds=junk"))
        before = target.snapshots
        await until(lambda: target.users == 1 and target.snapshots > before)
        target.work(3)
        assert values(await asking)[-1] == (3, 3000, 3000)
        await service.manager.stop()

    timed = Endpoint("nap", "Naps", seconds=1)
    with registered(replace(NAPS, endpoint=timed)) as kind:
        run(work(kind))


def test_the_index_describes_the_kind(kind: ProfileKind) -> None:
    async def work(kind: ProfileKind) -> None:
        service, _ = await recorded(kind)
        page = (await service.client.ask("/debug/pprof/")).body.decode()
        assert "<td>2</td><td><a href='nap?debug=1'>nap</a></td>" in page
        assert "Where goroutines &lt;napped&gt;" in page
        assert "Without (block, nap), all" in page

    run(work(kind))


def test_the_page_learns_the_words_of_the_kind(kind: ProfileKind) -> None:
    async def work(kind: ProfileKind) -> None:
        service, _ = await recorded(kind)
        found = (await service.client.ask("/api/targets")).json
        assert [each["kinds"] for each in found["targets"]] == [
            ["block", "naps", "goroutine", "heap", "allocs", "threads", "threadcreate"]
        ]
        assert [each["name"] for each in found["kinds"]][-1] == "naps"
        assert found["kinds"][-1] == described_kind(kind, ())
        assert found["kinds"][-1] == {
            "name": "naps",
            "title": "nap",
            "summary": "where goroutines took a nap",
            "moment": False,
            "at_a_time": "goroutines waiting",
            "lock_option": "",
            "table": {"rows": "operations", "count": "Naps"},
        }
        timeline = (await service.client.ask(f"/api/targets/{PID}/timeline?kind=naps")).json
        assert timeline["unit"] == "bytes"
        assert [(w["count"], w["value"]) for w in timeline["windows"]] == [(5, 4010)]
        file = await service.client.ask(f"/api/targets/{PID}/pprof?kind=naps")
        assert values(file) == [(1, 10, 10), (4, 4000, 4000)]
        await service.manager.stop()

    run(work(kind))


@pytest.mark.parametrize("metric", [Metric("ebpfprof_nap_seconds", "Time."), None])
def test_the_kind_has_its_metric(metric: Metric | None) -> None:
    async def work(kind: ProfileKind) -> None:
        service, _ = await recorded(kind)
        text = (await service.client.ask("/metrics")).body.decode()
        of_kind = f'command="shop",kind="naps",pid="{PID}"'
        assert f"ebpfprof_events_total{{{of_kind}}} 5.0" in text
        of_time = f'ebpfprof_nap_seconds_total{{command="shop",pid="{PID}"}} 4.01e-06'
        assert (of_time in text) == (metric is not None)
        assert f'ebpfprof_delay_seconds_total{{command="shop",kind="block",pid="{PID}"}}' in text

    with registered(replace(NAPS, metric=metric)) as kind:
        run(work(kind))


def test_kinds_share_a_metric() -> None:
    async def work(kind: ProfileKind) -> None:
        service, _ = await recorded(kind)
        text = (await service.client.ask("/metrics")).body.decode()
        for name in ("block", "naps"):
            labels = f'command="shop",kind="{name}",pid="{PID}"'
            assert f"ebpfprof_delay_seconds_total{{{labels}}} 4.01e-06" in text
        assert text.count("# TYPE ebpfprof_delay_seconds_total") == 1

    shared = Metric("ebpfprof_delay_seconds", "Time.", is_shared=True)
    with registered(replace(NAPS, metric=shared)) as kind:
        run(work(kind))


def test_requests_are_counted_by_the_name_of_the_endpoint(kind: ProfileKind) -> None:
    assert endpoint("/debug/pprof/nap") == "nap"
    assert endpoint("/proc/1/debug/pprof/delta_nap") == "delta_nap"
    assert endpoint("/debug/pprof/naps") == "other"


def test_a_moment_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pprof_endpoints, "FIRST_S", 1000)  # longer than a test may take

    async def work(kind: ProfileKind) -> None:
        service, _ = await recorded(kind)
        assert values(await service.client.ask("/debug/pprof/nap")) != []
        assert "Without (block), all" in (await service.client.ask("/debug/pprof/")).body.decode()
        await service.manager.stop()

    with registered(replace(NAPS, is_moment=True)) as kind:
        run(work(kind))
