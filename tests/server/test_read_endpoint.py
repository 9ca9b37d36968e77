"""The endpoint of what is read, here goroutines: over HTTP, of a still program, and its deltas."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterator, Sequence
from unittest import mock

import pytest

from ebpfprof.continuous.process import RecordedProcess
from ebpfprof.export import pprof
from ebpfprof.process.process import TargetEnd
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.registry import kind_named
from ebpfprof.server import goroutines
from tests.continuous.fakes import PID, FakeTarget, go_process
from tests.continuous.loops import run
from tests.differential.test_tracebacks import still, without_main
from tests.go_target import read
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.server.fakes import Answer, Service
from tests.server.serving import Server
from tests.targets_run import Target

KIND = kind_named("goroutine")


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with still(program("tracebacks"), {"GODEBUG": "tracebacklabels=0"}) as target:
        yield target


@pytest.fixture(scope="module")
def server(target: Target) -> Iterator[Server]:
    """It records something else, which takes probes."""
    with Server("--pid", str(target.pid), "--profile", "block") as server:
        assert server.ready
        yield server


@pytest.mark.parametrize("prefix", ["", "/proc/{pid}"])
def test_all_forms_are_there_without_a_recording(
    target: Target, server: Server, prefix: str
) -> None:
    path = prefix.format(pid=target.pid) + "/debug/pprof/goroutine"
    traceback, text = server.get(f"{path}?debug=2"), server.get(f"{path}?debug=1")
    for answer in (traceback, text):
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert "content-disposition" not in answer.headers
    assert without_main(traceback.body) == without_main(read(target.pid, goroutines.traceback))
    assert without_main(text.body) == without_main(read(target.pid, goroutines.text))
    profile = server.get(path)
    assert profile.headers["content-disposition"] == 'attachment; filename="goroutine"'
    found, expected = profile.profile("goroutine"), read(target.pid, goroutines.profile, KIND)
    assert total(found) == total(expected) == int(text.body.split(b"\n")[0].split()[-1])
    assert found.duration_ns == 0
    assert ("a", "1") in {(e.key, e.value) for sample in found.samples for e in sample.labels}
    as_text = server.get(f"{path}?debug=-1")  # Go's, too, is a file with the headers of a text
    assert as_text.headers["content-type"] == "text/plain; charset=utf-8"
    assert total(pprof.decode(as_text.body)) == total(expected)
    assert not has_probes(target.pid)


def test_the_index_has_their_number(target: Target, server: Server) -> None:
    page = server.get("/debug/pprof/").body.decode()
    (count,) = re.findall(r"<tr><td>(\d+)</td><td><a href='goroutine\?debug=1'>", page)
    assert int(count) == read(target.pid, goroutines.count)
    assert "export in the same format as an unrecovered panic." in page
    assert not has_probes(target.pid)


def test_head_has_no_body(target: Target, server: Server) -> None:
    for query in ("", "?debug=1", "?debug=2", "?seconds=60"):
        answer = server.get(f"/debug/pprof/goroutine{query}", method="HEAD")
        assert (answer.status, answer.body) == (200, b"")
        assert ("content-disposition" in answer.headers) == ("debug" not in query)


def total(profile: Profile) -> int:
    return sum(sample.values[0] for sample in profile.samples)


async def delta(
    service: Service, commands: Sequence[str], target: Target, name: str = "goroutine"
) -> Answer:
    """What ?seconds=3600 answers for the time of these commands."""
    waited: list[float] = []

    async def wait(
        _process: RecordedProcess, seconds: float, until: Awaitable[object] | None = None
    ) -> bool:
        waited.append(seconds)
        for command in commands:
            await asyncio.to_thread(target.ask, command, "done")
        assert until is not None
        asyncio.ensure_future(until).cancel()
        return True

    with mock.patch.object(service.manager, "wait", wait):
        answer = await service.client.ask(f"/debug/pprof/{name}?seconds=3600")
    assert waited == [3600]
    return answer


def test_seconds_give_what_came_and_what_went() -> None:
    """A value that decreased is negative, and what stayed is not there, as in Go's deltas."""

    async def work(target: Target) -> None:
        service = await Service.of(FakeTarget(target.pid, kinds=("cpu",)))
        for command, change in (("more", 3), ("fewer", -3)):
            answer = await delta(service, [command], target)
            assert answer.status == 200
            disposition = 'attachment; filename="goroutine-delta"'
            assert answer.headers["content-disposition"] == disposition
            found = pprof.decode(answer.body)
            waiting = [
                sample.values
                for sample in found.samples
                if "main.main" not in {frame.function for frame in sample.frames}
            ]
            assert waiting == [(change,)]
            assert 0 < found.duration_ns < 60e9

    with still(program("tracebacks")) as target:
        run(work(target))


def test_a_client_that_hangs_up_ends_the_waiting(target: Target) -> None:
    async def work() -> None:
        service = await Service.of(FakeTarget(target.pid))
        hang_up = asyncio.Event()
        hang_up.set()
        answer = await service.client.ask("/debug/pprof/goroutine?seconds=3600", hang_up=hang_up)
        assert (answer.status, answer.body) == (200, b"")

    run(work())


def test_an_ended_process_is_reported() -> None:
    async def work() -> None:
        with still(program("tracebacks")) as target:
            fake = FakeTarget(target.pid)
            service = await Service.of(fake)
            asked = service.client.ask("/debug/pprof/goroutine?seconds=3600")
            asking = asyncio.ensure_future(asked)
            await service.client.ask("/debug/pprof/goroutine?debug=1")  # it has read by then
            process = service.manager.processes[0]
            service.manager.note_ending(process, TargetEnd(f"process {fake.pid} ended").text)
            for answer in (await asking, await service.client.ask("/debug/pprof/goroutine")):
                assert (answer.status, answer.headers["x-go-pprof"]) == (404, "1")
                assert answer.body == f"Process {fake.pid} ended.\n".encode()

    run(work())


def test_a_process_that_is_not_there_has_none() -> None:
    async def work() -> None:
        service = await Service.of(FakeTarget(PID))
        for query in ("", "?debug=1", "?debug=2"):
            answer = await service.client.ask(f"/debug/pprof/goroutine{query}")
            assert answer.status == 404
            assert f"no process {PID}".encode() in answer.body
        page = (await service.client.ask("/debug/pprof/")).body
        assert b"<tr><td>0</td><td><a href='goroutine?debug=1'>" in page

    run(work())


def test_a_program_that_is_not_gos_has_no_goroutines() -> None:
    async def work() -> None:
        service = await Service.of(FakeTarget(PID, kinds=("cpu",), go_version=None))
        answer = await service.client.ask("/debug/pprof/goroutine?debug=2")
        assert answer.status == 404
        assert answer.body.startswith(b"Unknown profile. goroutine is not recorded")
        assert b">goroutine<" not in (await service.client.ask("/debug/pprof/")).body

    run(work())


def test_a_process_that_was_found_need_not_be_opened(target: Target) -> None:
    async def work() -> None:
        service = await Service.of()
        process = service.manager.add_found(go_process(target.pid))
        answer = await service.client.ask("/debug/pprof/goroutine?debug=2")
        assert without_main(answer.body) == without_main(read(target.pid, goroutines.traceback))
        assert (service.live.adds, process.target) == (0, None)

    run(work())
