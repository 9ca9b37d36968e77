"""The endpoints of net/http/pprof over a fake: recordings and answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from ebpfprof.export import pprof
from ebpfprof.process.process import TargetEnd
from ebpfprof.profile.lock_labels import lock_labels
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.cpu.kind import CPU
from ebpfprof.profilers.registry import registered
from ebpfprof.server import pprof_endpoints
from tests.builds import in_full
from tests.continuous.fakes import PID, FakeTarget
from tests.continuous.loops import run, until
from tests.server.fakes import Answer, Service

pytestmark = pytest.mark.usefixtures("checks_often")

T = TypeVar("T")
KNOWN = (
    b"allocs, block, cmdline, goroutine, heap, mutex, profile, symbol, threadcreate, threads, trace"
)
HAS = b"Process %d has %s.\n" % (PID, KNOWN)
UNKNOWN = b"Unknown profile. " + HAS
BAD_SECONDS = b'invalid value for "seconds" - must be a positive integer\n'


def profile_of(answer: Answer) -> Profile:
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    return pprof.decode(answer.body)


def counts(answer: Answer) -> list[int]:
    return sorted(sample.values[0] for sample in profile_of(answer).samples)


async def while_working(
    target: FakeTarget, ask: Awaitable[T], then: Callable[[], object], *, measured: bool = True
) -> T:
    """Ask; once it is recorded (and `measured` from then on), three things happen, then another."""
    before = target.snapshots
    asking = asyncio.ensure_future(ask)
    await until(lambda: target.users > 0 and (target.snapshots > before or not measured))
    target.work(3)
    then()
    return await asking


async def server(target: FakeTarget, **options: Any) -> tuple[Service, asyncio.Task[None]]:  # noqa: ANN401 - the manager's
    service = await Service.of(target, **options)
    return service, asyncio.ensure_future(service.manager.run())


async def ended(service: Service, running: asyncio.Task[None]) -> None:
    await service.manager.stop()
    await running
    for target in service.live.targets.values():
        assert target.users == 0


@pytest.mark.parametrize(("name", "kind"), [("block", "block"), ("mutex", "mutex")])
def test_seconds_give_the_events_of_that_time(name: str, kind: str) -> None:
    async def work() -> None:
        target = FakeTarget(PID)
        service, running = await server(target)
        async with service.manager.leases.recording(service.manager.processes[0]):
            target.work(5)
        before_ns = time.time_ns()
        answer = await while_working(
            target, service.client.ask(f"/debug/pprof/{name}?seconds=1"), lambda: None
        )
        found = profile_of(answer)
        assert answer.headers["content-disposition"] == f'attachment; filename="{name}-delta"'
        assert [sample.values for sample in found.samples] == [(3, 3000)]
        assert found.duration_ns == 3_000_000_000
        assert before_ns < found.time_ns <= time.time_ns()
        assert found.comments == (f"{kind} of {PID}: 3",)
        await ended(service, running)

    run(work())


def test_what_a_request_records_has_the_time_of_its_start() -> None:
    """CPU profiles: of so many seconds, or of those of the endpoint, here of a short one."""
    assert CPU.endpoint is not None
    assert (CPU.endpoint.name, CPU.endpoint.seconds) == ("profile", 30)
    brief = replace(CPU.endpoint, name="brief", seconds=1)
    short = replace(CPU, name="brief", key="", options=(), endpoint=brief)

    async def work() -> None:
        target = FakeTarget(PID, kinds=("cpu", "brief"))
        service, running = await server(target)
        before_ns = time.time_ns()
        queries = ("", "?seconds=0", "?seconds=-1", "?seconds=0.5", "?seconds=junk")
        paths = (*(f"brief{query}" for query in queries), "profile?seconds=1")
        asked = [service.client.ask(f"/debug/pprof/{path}") for path in paths]
        for path, answer in zip(paths, await asyncio.gather(*asked), strict=True):
            found = profile_of(answer)
            name = path.partition("?")[0]
            assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
            assert found.sample_types[0].type == "samples"
            assert before_ns <= found.time_ns
            assert found.time_ns + 1_000_000_000 <= time.time_ns()
        await ended(service, running)

    with registered(short):
        run(work())


def test_the_sums_are_never_silently_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten requests at once all wait until something was recorded; a later one does not."""

    async def work() -> None:
        monkeypatch.setattr(pprof_endpoints, "FIRST_S", 0.5)
        target = FakeTarget(PID)
        service, running = await server(target)
        first = [service.client.ask("/debug/pprof/block") for _ in range(10)]
        gathered = asyncio.gather(*first)
        for answer in await while_working(target, gathered, lambda: None, measured=False):
            assert counts(answer) == [1, 3]
            assert profile_of(answer).duration_ns == 0
            assert answer.headers["content-disposition"] == 'attachment; filename="block"'
        assert target.users == 1  # the lease
        target.work(2)
        assert counts(await service.client.ask("/debug/pprof/block")) == [1, 5]
        await ended(service, running)

    run(work())


def test_deltas_hold_what_followed_the_last_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pprof_endpoints, "FIRST_S", 0)

    async def work() -> None:
        target = FakeTarget(PID)
        service, running = await server(target, continuous=True)
        await until(lambda: target.users == 1)
        target.work(4)
        first = await service.client.ask("/debug/pprof/delta_mutex")
        assert counts(first) == [1, 4]
        assert first.headers["content-disposition"] == 'attachment; filename="mutex.pprof.gz"'
        target.work(2)
        assert counts(await service.client.ask("/debug/pprof/delta_block")) == [1, 6]
        second = await service.client.ask("/debug/pprof/delta_mutex")
        assert counts(second) == [2]
        assert profile_of(second).duration_ns == 2_000_000_000
        assert profile_of(first).comments == (f"mutex of {PID}: 4",)
        assert profile_of(second).comments == (f"mutex of {PID}: 2",)
        assert counts(await service.client.ask("/debug/pprof/delta_mutex")) == []
        await ended(service, running)

    run(work())


def test_a_client_that_hangs_up_ends_the_recording() -> None:
    async def work() -> None:
        target = FakeTarget(PID)
        service, running = await server(target)
        for path in ("profile?seconds=99999999999", "block?seconds=600", "mutex?seconds=600"):
            hang_up = asyncio.Event()
            await while_working(
                target,
                service.client.ask(f"/debug/pprof/{path}", hang_up=hang_up),
                hang_up.set,
            )
            assert target.users == 0
        await ended(service, running)

    run(work())


def test_the_end_of_the_process_ends_the_waiting() -> None:
    async def work() -> None:
        target = FakeTarget(PID)
        service, running = await server(target)

        def go() -> None:
            target.ending = TargetEnd(f"process {PID} ended")

        answer = await while_working(
            target, service.client.ask("/debug/pprof/block?seconds=600"), go
        )
        assert counts(answer) == [3]
        for name in ("block?seconds=1", "block", "profile", "cmdline", "symbol?0x1", ""):
            refusal = await service.client.ask(f"/debug/pprof/{name}")
            assert (refusal.status, refusal.headers["x-go-pprof"]) == (404, "1")
            assert refusal.body == f"Process {PID} ended.\n".encode()
        await ended(service, running)

    run(work())


def test_the_end_of_the_server_ends_the_waiting() -> None:
    async def work() -> None:
        target = FakeTarget(PID)
        service, running = await server(target)
        stopping: list[asyncio.Task[None]] = []
        answer = await while_working(
            target,
            service.client.ask("/debug/pprof/block?seconds=600"),
            lambda: stopping.append(asyncio.ensure_future(service.manager.stop())),
        )
        assert counts(answer) == [3]
        await asyncio.gather(*stopping, running)
        assert target.users == 0

    run(work())


# The path, and what Go answers (net/http/pprof of 1.27, checked in test_like_go); where Go only
# says that it is unknown, we also say what there is.
REFUSALS = {
    "goroutineleak": (404, b"Unknown profile. ebpfprof can't record goroutineleak. " + HAS),
    "nonsense?seconds=x": (404, UNKNOWN),
    "block/": (404, UNKNOWN),
    "delta_goroutine": (404, UNKNOWN),
    "block?seconds=0": (400, BAD_SECONDS),
    "block?seconds=-5": (400, BAD_SECONDS),
    "block?seconds=1.5": (400, BAD_SECONDS),
    "block?seconds=x": (400, BAD_SECONDS),
    "block?seconds=99999999999999999999": (400, BAD_SECONDS),
    "mutex?seconds=%20": (400, BAD_SECONDS),
    "mutex?seconds=1&debug=1": (400, b"seconds and debug params are incompatible\n"),
    "mutex?seconds=1&debug=99999999999999999999": (
        400,
        b"seconds and debug params are incompatible\n",
    ),
}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_bad_requests_are_refused(method: str) -> None:
    async def work() -> None:
        target = FakeTarget(PID)
        service = await Service.of(target)
        for path, (status, body) in REFUSALS.items():
            for prefix in ("", f"/proc/{PID}"):
                url = f"{prefix}/debug/pprof/{path}"
                answer = await service.client.ask(url, method=method)
                assert (answer.status, answer.body) == (status, body), url
                assert answer.headers["x-go-pprof"] == "1"
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert answer.headers["content-type"] == "text/plain; charset=utf-8"
                assert "content-disposition" not in answer.headers
        assert target.starts == 0

    run(work())


def test_head_starts_no_recording() -> None:
    async def work() -> None:
        target = FakeTarget(PID)
        service = await Service.of(target)
        for path in ("block", "mutex?seconds=600", "profile", "delta_block", "block?debug=1"):
            answer = await service.client.ask(f"/debug/pprof/{path}", method="HEAD")
            assert (answer.status, answer.body) == (200, b"")
            assert ("content-disposition" in answer.headers) == ("debug" not in path)
        assert target.starts == 0

    run(work())


def test_only_recorded_kinds_have_endpoints() -> None:
    async def work() -> None:
        service = await Service.of(FakeTarget(PID, kinds=("cpu",)))
        for name in ("block", "mutex", "delta_mutex"):
            answer = await service.client.ask(f"/debug/pprof/{name}")
            assert answer.body.decode() == (
                f"Unknown profile. {name} is not recorded for this process: choose profiles with "
                f"serve --profile. Process {PID} has allocs, cmdline, goroutine, heap, "
                "profile, symbol, threadcreate, threads, trace.\n"
            )
        page = (await service.client.ask("/debug/pprof/")).body
        assert b">profile<" in page
        assert b">block<" not in page

    run(work())


def test_methods_other_than_get_and_head_are_refused() -> None:
    async def work() -> None:
        service = await Service.of(FakeTarget(PID))
        for name in ("block", "", "profile", "cmdline", "heap"):
            for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
                answer = await service.client.ask(f"/debug/pprof/{name}", method=method)
                assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
                assert answer.body == b"Method Not Allowed\n"
        answer = await service.client.ask("/debug/pprof/symbol", method="POST", body=b"0x1+junk")
        assert (answer.status, answer.body) == (200, b"num_symbols: 1\n")
        answer = await service.client.ask("/debug/pprof/symbol", method="POST", body=b"+" * 2**21)
        assert answer.status == 413

    run(work())


def test_with_several_processes_the_path_must_name_one() -> None:
    async def work() -> None:
        service = await Service.of(FakeTarget(PID), FakeTarget(PID + 1))
        for path in ("", "block?seconds=1"):
            answer = await service.client.ask(f"/debug/pprof/{path}")
            assert (answer.status, answer.headers["x-go-pprof"]) == (404, "1")
            assert b"/proc/PID/debug/pprof/block" in answer.body
        assert (await service.client.ask(f"/proc/{PID + 1}/debug/pprof/")).status == 200
        stranger = await service.client.ask("/proc/1/debug/pprof/block")
        assert (stranger.status, stranger.headers["x-go-pprof"]) == (404, "1")
        assert b"Process 1 is not served here" in stranger.body
        for digits in (40, 5000):  # the latter are more than Python makes a number of
            for path in ("/proc/{}/debug/pprof/block", "/api/targets/{}/timeline"):
                huge = await service.client.ask(path.format("9" * digits))
                assert huge.status == 404

    run(work())


def test_a_missing_slash_is_added() -> None:
    async def work() -> None:
        service = await Service.of(FakeTarget(PID))
        for path in ("/debug/pprof", f"/proc/{PID}/debug/pprof"):
            answer = await service.client.ask(f"{path}?x=1")
            assert answer.status == 307
            assert answer.headers["location"].endswith(f"{path}/?x=1")

    run(work())


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("path", ["block", *in_full("mutex?seconds=1"), "delta_block"])
def test_what_is_scraped_has_labels_of_locks_only_where_they_are_asked_for(
    path: str, always: bool
) -> None:
    """The fake has the events of a window under as many locks."""

    class Locking(FakeTarget):
        def profile(self, kind: Any) -> Profile:  # noqa: ANN401 - as in FakeTarget
            found = super().profile(kind)
            locks = [
                replace(one, labels=lock_labels(None, 8 * n))
                for one in found.samples[:1]
                for n in (1, 2)
            ]
            return replace(found, samples=(*locks, *found.samples[1:]))

    async def work() -> None:
        target = Locking(PID)
        service = await Service.of(target, lock_labels=always)
        running = asyncio.ensure_future(service.manager.run())
        async with service.manager.leases.recording(service.manager.processes[0]):
            target.work(5)
            service.manager.processes[0].since_s -= pprof_endpoints.FIRST_S
            asked = {}
            for query in ("", "labels=lock"):
                url = f"/debug/pprof/{path}{'&' if '?' in path else '?'}{query}"
                asking = service.client.ask(url)
                answer = await (
                    while_working(target, asking, lambda: None) if "seconds" in path else asking
                )
                asked[query] = answer.body
                service.manager.processes[0].last_read.clear()
        for query, body in asked.items():
            labels = [sample.labels for sample in pprof.decode(body).samples if sample.labels]
            assert len(labels) == (2 if query or always else 0), (query, labels)
        await ended(service, running)

    run(work())
