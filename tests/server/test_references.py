"""What keeps memory alive, over HTTP: of a real program, by a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import pytest

from tests.builds import in_full
from tests.continuous.fakes import PID
from tests.continuous.loops import run
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.server.fakes import recorded
from tests.server.serving import Server, ask
from tests.targets_run import Target

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "references.schema.json").read_text())
TOKEN = "a-token-of-some-length"
READ = ("--profile", "goroutine")


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with Target.start(program("references")) as running:
        running.ask("leak", "done")
        running.ask("gc", "done")
        yield running


def test_it_is_what_the_command_prints(target: Target) -> None:
    with Server("--pid", str(target.pid), *READ) as server:
        assert server.ready
        with ThreadPoolExecutor(3) as pool:  # those that come meanwhile share the answer
            answers = list(pool.map(server.get, ["/debug/references"] * 3))
        page = server.get(f"/api/targets/{target.pid}/references")
    first = answers[0]
    assert first.status == 200, first.body
    assert len({answer.body for answer in answers}) < len(answers)
    found = json.loads(first.body)
    jsonschema.validate(found, SCHEMA)
    assert any(root["label"] == "main.sessions" for root in found["roots"])
    assert found["leaked_goroutines"]
    assert first.headers["cache-control"] == "no-store"
    shown = json.loads(page.body)
    assert shown["answers"][0].startswith("main.sessions (map[string]*main.session) keeps")
    assert any("main.leakedSend" in leak["title"] for leak in shown["leaks"])
    assert not has_probes(target.pid)
    # What objects contain is not shown: the keys of the map.
    assert b"session-1" not in first.body + page.body


def test_it_needs_the_token(target: Target, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    options = ("--token-file", str(tmp_path / "token"), *READ)
    with Server("--pid", str(target.pid), *options) as server:
        for path in ("/debug/references", f"/api/targets/{target.pid}/references"):
            assert ask(server.address, path).status == 401


@pytest.mark.parametrize("path", ["/proc/7/debug/references", "/api/targets/7/references"])
def test_another_process_is_not_read(path: str) -> None:
    async def work() -> None:
        service, _ = await recorded(1)
        answer = await service.client.ask(path)
        assert answer.status == 404
        assert "Process 7 is not served here" in answer.body.decode()

    run(work())


@pytest.mark.parametrize("path", [*in_full("/debug/references"), f"/api/targets/{PID}/references"])
def test_a_process_that_can_not_be_read_is_an_error_in_a_sentence(path: str) -> None:
    async def work() -> None:
        service, _ = await recorded(1)
        answer = await service.client.ask(path)
        assert answer.status in (404, 500)
        assert str(PID) in answer.body.decode()

    run(work())
