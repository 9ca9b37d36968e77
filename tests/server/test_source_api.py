"""The lines of source files that the server shows: those of files that a profile names."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebpfprof.process.source_files import SourceFiles
from tests.continuous.fakes import PID, FakeTarget
from tests.continuous.loops import run
from tests.server.fakes import Service

SOURCE = f"/api/targets/{PID}/source"
pytestmark = pytest.mark.usefixtures("checks_often")


async def recorded(sources: SourceFiles | None) -> Service:
    target = FakeTarget(PID)
    service = await Service.of(target, sources=sources)
    (process,) = service.manager.processes
    async with service.manager.leases.recording(process):
        target.work(3)
        await service.manager.readings.end_window(process)
    return service


@pytest.fixture
def src(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    lines = [f"line {number}" for number in range(1, 31)]
    (folder / "main.go").write_text("\n".join(lines))
    (folder / "other.go").write_text("never named\n")
    return folder


def test_lines_of_a_file_that_a_profile_names_are_shown(src: Path) -> None:
    async def work() -> None:
        with SourceFiles([str(src)]) as sources:
            service = await recorded(sources)
            found = (await service.client.ask(f"{SOURCE}?file=/src/main.go")).json
        assert found["path"] == str(src / "main.go")
        assert list(found["lines"]) == [str(number) for number in range(4, 21)]
        assert found["lines"]["12"] == "line 12"
        # The fake's recording began long ago.
        assert found["changed"] is True

    run(work())


def test_no_other_file_is_shown(src: Path) -> None:
    async def work() -> None:
        with SourceFiles([str(src)]) as sources:
            service = await recorded(sources)
            for file in ("/src/other.go", f"{src}/other.go", "/etc/passwd", ""):
                answer = await service.client.ask(f"{SOURCE}?file={file}")
                assert answer.json == {"problem": "No profile of this process names such a file."}
            answer = await service.client.ask(f"{SOURCE}?file=/go/runtime/chan.go")
            assert answer.json["problem"].startswith("There is no such file below ")
            assert (await service.client.ask("/api/targets/1/source?file=x")).status == 404

    run(work())


def test_without_source_no_text_is_shown() -> None:
    async def work() -> None:
        service = await recorded(None)
        answer = await service.client.ask(f"{SOURCE}?file=/src/main.go")
        assert answer.status == 200
        assert answer.json == {
            "problem": "No text of files is shown: start serve with --source DIR for that."
        }

    run(work())
