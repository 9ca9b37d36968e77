"""What the page asks for, over a fake: targets, timelines, profiles of a time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.errors import UnsupportedGo
from ebpfprof.export import pprof
from ebpfprof.process.process import TargetEnd
from ebpfprof.profile.delta import totals
from ebpfprof.profile.handlers import HANDLER
from ebpfprof.profile.model import Label, Profile
from ebpfprof.server import app as app_module
from ebpfprof.server import page_api
from tests.continuous.fakes import PID, FakeTarget, go_process
from tests.continuous.loops import run, until
from tests.kernel.programs import program
from tests.server.fakes import Answer, Service, recorded
from tests.targets_run import Target

pytestmark = pytest.mark.usefixtures("checks_often")

READ = ["goroutine", "heap", "allocs", "threads", "threadcreate"]
"""What a Go program has without a recording, in the order of the registry."""
NOT_KEPT = (
    "The last seconds are not kept here: start serve with --last 10s. seconds=N records the next "
    "ones."
)


def test_targets_are_described() -> None:
    async def work() -> None:
        service, _ = await recorded(1)
        await service.follower.survey()
        found = (await service.client.ask("/api/targets")).json
        assert set(found) == {
            *("version", "interval_s", "retention_s", "last_s", "kinds", "targets")
        }
        assert (found["interval_s"], found["retention_s"], found["last_s"]) == (5, 600, None)
        assert found["targets"] == [
            {
                "pid": PID,
                "name": "shop",
                "command": "shop -x",
                "go": "go1.27.3",
                "container": None,
                "user": "eve",
                "supported": True,
                "why_not": "",
                "recording": False,
                "kinds": ["block", "mutex", "cpu", *READ],
                "read": READ,
                "cpu": None,
                "memory_bytes": None,
                "goroutines": None,
                "not_read": 0,
                "findings": [],
                "prefix": f"/proc/{PID}",
                "ended": None,
                "last": {"is_there": False, "says": NOT_KEPT},
                "state": "idle",
                "says": "Not recording.",
            }
        ]

    run(work())


def test_a_timeline_keeps_its_process_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        service, target = await recorded(3, 2)
        running = asyncio.ensure_future(service.manager.run())
        begun = time.time()
        answer = await service.client.ask(f"/api/targets/{PID}/timeline?kind=mutex")
        assert answer.headers["cache-control"] == "no-store"
        found = answer.json
        assert (found["kind"], found["unit"], found["interval_s"]) == ("mutex", "nanoseconds", 5)
        # In the first there is one sample more, see FakeTarget.
        assert [(w["count"], w["value"]) for w in found["windows"]] == [(4, 3010), (2, 2000)]
        first, second = found["windows"]
        assert first["start_s"] <= first["end_s"] == second["start_s"] <= second["end_s"] <= begun
        await until(lambda: target.users == 1)
        service.manager.processes[0].leased_until_s = 0
        await until(lambda: target.users == 0)
        await service.manager.stop()
        await running

    run(work())


def test_the_page_learns_why_a_process_cannot_be_recorded() -> None:
    async def work() -> None:
        service = await Service.of()
        service.live.refusal = UnsupportedGo(f"Process {PID} is none of ours.")
        service.manager.add_found(go_process(PID))
        url = f"/api/targets/{PID}/timeline"
        assert (await service.client.ask(url)).json["windows"] == []
        await until(lambda: service.manager.processes[0].problem is not None)
        answer = await service.client.ask(url)
        assert answer.status == 500
        assert answer.json == {"error": f"Process {PID} is none of ours."}
        block = await service.client.ask("/debug/pprof/block?seconds=1")
        assert (block.status, block.headers["x-go-pprof"]) == (500, "1")
        assert block.body == f"Process {PID} is none of ours.\n".encode()

    run(work())


def total(answer: Answer) -> int:
    return sum(values[0] for values in answer.json["values"])


def test_a_profile_can_be_of_a_given_time() -> None:
    async def work() -> None:
        service, _ = await recorded(3, 2, 1)
        (process,) = service.manager.processes
        first, second, third = process.history.windows
        url = f"/api/targets/{PID}/profile?kind=block"

        everything = await service.client.ask(url)
        assert everything.headers["content-type"] == "application/json"
        assert everything.json["format"] == "ebpfprof-profile-1"
        assert total(everything) == 1 + 3 + 2 + 1
        one = await service.client.ask(f"{url}&from={second.start_s}&to={second.end_s}")
        assert total(one) == 2
        two = await service.client.ask(f"{url}&from={second.start_s}&to={third.end_s}")
        assert total(two) == 3
        file = await service.client.ask(
            f"/api/targets/{PID}/pprof?kind=block&from={first.start_s}&to={second.end_s}"
        )
        profile = pprof.decode(file.body)
        when = time.strftime("%Y%m%d-%H%M%S", time.localtime(profile.time_ns / 1e9))
        assert file.headers["content-disposition"] == (
            f'attachment; filename="shop-{PID}-{when}.block.pb.gz"'
        )
        assert sorted(sample.values[0] for sample in profile.samples) == [1, 5]
        assert profile.duration_ns == 5_000_000_000
        assert profile.comments == (f"block of {PID}: 5",)

    run(work())


class OneHandler:
    """As ProcessHandlers: stacks with more than one wait are of a handler."""

    def labelled(self, profiles: Sequence[Profile]) -> list[Profile]:
        labels = (Label(HANDLER, "main.get: GET /a"),)
        return [
            replace(
                one,
                samples=tuple(
                    replace(each, labels=labels) if each.values[0] > 1 else each
                    for each in one.samples
                ),
            )
            for one in profiles
        ]


def test_a_file_may_be_that_of_a_handler() -> None:
    async def work() -> None:
        service, _ = await recorded(3, 2, 1)
        (process,) = service.manager.processes
        process.handlers = OneHandler()
        url = f"/api/targets/{PID}/pprof?kind=block&handler="
        for text, counts in (("GET /a", [6]), ("", [1, 6]), ("POST", [])):
            file = await service.client.ask(url + text.replace(" ", "%20"))
            found = [sample.values[0] for sample in pprof.decode(file.body).samples]
            assert sorted(found) == counts

    run(work())


def test_a_profile_includes_the_current_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_api, "FRESH_S", 0.0)

    async def work() -> None:
        target = FakeTarget(PID)
        service = await Service.of(target)
        url = f"/api/targets/{PID}/profile?kind=block"
        async with service.manager.leases.recording(service.manager.processes[0]):
            target.work(3)
            assert total(await service.client.ask(url)) == 4
            target.work(2)
            assert total(await service.client.ask(f"{url}&to={time.time() + 60}")) == 6

    run(work())


def test_bad_requests_get_errors() -> None:
    async def work() -> None:
        service, _ = await recorded(1)
        base = f"/api/targets/{PID}"
        now = time.time()
        for url, status in (
            ("/api/targets/1/timeline", 404),
            ("/api/targets/x/timeline", 404),
            ("/api/nonsense", 404),
            (f"{base}/timeline?kind=open", 400),
            (f"{base}/profile?kind=", 400),
            (f"{base}/profile?from=x", 400),
            (f"{base}/profile?to=nan", 400),
            (f"{base}/profile?from=inf", 400),
            (f"{base}/profile?from=10&to=5", 400),
            (f"{base}/profile?from=10&to=20", 404),
            (f"{base}/pprof?from={now + 10}&to={now + 20}", 404),
        ):
            answer = await service.client.ask(url)
            assert answer.status == status, url
            assert set(answer.json) == {"error"}
            assert answer.json["error"].endswith(".")
        refused = await service.client.ask("/api/targets", method="POST")
        assert (refused.status, set(refused.json)) == (405, {"error"})

    run(work())


def test_profiles_of_an_ended_process_stay() -> None:
    async def work() -> None:
        service, target = await recorded(3)
        running = asyncio.ensure_future(service.manager.run())
        target.ending = TargetEnd(f"process {PID} ended")
        await service.manager.processes[0].ended.wait()
        (found,) = (await service.client.ask("/api/targets")).json["targets"]
        assert (found["ended"], found["recording"]) == (f"process {PID} ended", False)
        assert total(await service.client.ask(f"/api/targets/{PID}/profile")) == 4
        timeline = await service.client.ask(f"/api/targets/{PID}/timeline")
        assert len(timeline.json["windows"]) == 1
        assert target.users == 0
        await service.manager.stop()
        await running

    run(work())


class BrokenHandlers:
    """As ProcessHandlers, with a bug."""

    def labelled(self, profiles: Sequence[Profile]) -> list[Profile]:
        raise RuntimeError("secret \x1b[2J")


def test_a_bug_is_reported_without_details(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        service, _ = await recorded(1)
        (process,) = service.manager.processes
        process.handlers = BrokenHandlers()
        with pytest.raises(RuntimeError):  # for the server, which ends the connection
            await service.client.ask(f"/api/targets/{PID}/profile")

    run(work())
    output = capsys.readouterr().err
    assert "This is a bug: RuntimeError" in output
    assert "\x1b" not in output


def test_the_page_and_its_files_are_served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    web = tmp_path / "web"
    web.mkdir()
    (web / "index.html").write_text("<p>page")
    (web / "page.js").write_text("let a;")
    (web / "folder").mkdir()
    (web / "folder" / "inner.js").write_text("let b;")
    (web / "link.js").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("secret")
    monkeypatch.setattr(app_module, "WEB_FOLDER", web)

    async def work() -> None:
        service = await Service.of()
        page = await service.client.ask("/")
        assert (page.status, page.body) == (200, b"<p>page")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        script = await service.client.ask("/assets/page.js")
        assert script.body == b"let a;"
        assert script.headers["content-type"].startswith("text/javascript")
        for answer in (page, script):
            assert "default-src 'self'" in answer.headers["content-security-policy"]
            assert "'unsafe" not in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
        for name in ("none.js", "folder", "../secret", "..", "%2e%2e/secret", "link.js"):
            assert (await service.client.ask(f"/assets/{name}")).body != b"secret"
        for name in (
            *("none.js", "folder", "../secret", "..", "%2e%2e/secret", "folder/../page.js"),
            *("folder/inner.js", "folder/", "link.js", "/folder/inner.js"),
        ):
            answer = await service.client.ask(f"/assets/{name}")
            if answer.status == 307:
                answer = await service.client.ask(answer.headers["location"])
            known = {"..": b"<p>page", "folder/../page.js": b"let a;"}
            known |= dict.fromkeys(("folder/inner.js", "/folder/inner.js"), b"let b;")
            assert answer.status == (200 if name in known else 404), name
            assert answer.body == known.get(name, answer.body)

    run(work())


def test_unsupported_processes_are_listed_where_all_are_served() -> None:
    async def work() -> None:
        service = await Service.of()
        service.follower.follow()
        service.follower.found = [
            go_process(PID),
            go_process(PID + 1, supported=False, why_not="Go 1.4 is too old"),
        ]
        found = (await service.client.ask("/api/targets")).json["targets"]
        assert [(each["pid"], each["supported"], each["why_not"]) for each in found] == [
            (PID, True, ""),
            (PID + 1, False, "Go 1.4 is too old"),
        ]

    run(work())


def test_the_load_of_each_process_is_listed() -> None:
    async def work() -> None:
        service = await Service.of(FakeTarget(os.getpid()), FakeTarget(PID))
        for _ in range(2):
            ours, none = (await service.client.ask("/api/targets")).json["targets"]
            assert ours["cpu"] >= 0
            assert ours["memory_bytes"] > 1 << 20
            assert (none["cpu"], none["memory_bytes"]) == (None, None)

    run(work())


def test_what_is_read_from_memory_is_there_without_a_recording() -> None:
    async def work(pid: int) -> None:
        target = FakeTarget(pid)
        service = await Service.of(target, FakeTarget(PID))
        path = f"/api/targets/{target.pid}"
        times = await service.client.ask(f"{path}/timeline?kind=goroutine")
        assert times.json["windows"] == []
        found = await service.client.ask(f"{path}/profile?kind=goroutine")
        assert (found.status, found.json["kind"]) == (200, "goroutine")
        heap = await service.client.ask(f"/api/targets/{PID}/profile?kind=heap")
        assert heap.status == 404  # there is no such process
        assert target.starts == 0

    with Target.start(program("ticker")) as ticker:
        run(work(ticker.pid))


def test_asking_for_the_latest_ends_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or steps of the timeline would be as short as requests are frequent."""
    monkeypatch.setattr(page_api, "FRESH_S", 0.0)

    async def work() -> None:
        target = FakeTarget(PID)
        service = await Service.of(target)
        (process,) = service.manager.processes
        async with service.manager.leases.recording(process):
            for kind in ("block", "cpu"):
                target.work(2)
                before = total(await service.client.ask(f"/api/targets/{PID}/profile?kind={kind}"))
                target.work(3)
                after = total(await service.client.ask(f"/api/targets/{PID}/profile?kind={kind}"))
                assert after == before + 3
            assert not process.history.windows
            await service.manager.readings.end_window(process)
            (window,) = process.history.windows
            assert totals(window.profiles["block"])[0] == 1 + 10
            assert totals(window.profiles["cpu"])[0] == 1 + 10
            again = await service.client.ask(f"/api/targets/{PID}/profile?kind=block")
            assert total(again) == 1 + 10  # nothing twice

    run(work())


def test_a_server_that_ends_says_so() -> None:
    async def work() -> None:
        service, _ = await recorded(1)
        await service.manager.stop_at_once(ends_windows=False)
        answer = await service.client.ask(f"/api/targets/{PID}/profile?kind=block")
        assert answer.status == 503
        assert answer.json == {"error": "This server is shutting down."}

    run(work())
