"""Traces of programs that replace themselves or have hostile names, and on a disk that is full."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from tests.builds import in_full
from tests.kernel.hostileprogram import MARK, RAW, hostile_target
from tests.kernel.mounts import mounted
from tests.kernel.programs import program
from tests.kernel.test_trace_command import STATES, parsed, perfetto, started, trace
from tests.kernel.verbs import verb
from tests.targets_run import DEADLINE_S, Target


@pytest.mark.parametrize("into", [*in_full("itself"), "another program"])
def test_what_there_is_is_written_when_the_program_execs(into: str, tmp_path: Path) -> None:
    path, ticker = tmp_path / "a.trace", program("ticker")
    program_after = str(ticker) if into == "itself" else "/bin/cat"
    with Target.start(ticker, program_after) as target:
        tracing = started("--pid", str(target.pid), "-d", "60", "-o", str(path))
        target.ask("wait", "done")
        target.say("exec")
        _, errors = tracing.communicate(timeout=DEADLINE_S)
    assert tracing.returncode == ExitCode.OK, errors
    assert f"process {target.pid} replaced itself by another program (exec)" in errors
    assert len(STATES.findall(parsed(path))) > 20


def test_a_full_disk_loses_no_trace(tmp_path: Path) -> None:
    folder = tmp_path / "full"
    folder.mkdir()
    with mounted(folder, "-o", "size=4k"), Target.start(program("ticker")) as target:
        options = (
            str(target.pid),
            "-d",
            "0.5",
            "--max-overhead",
            "0",
            "-q",
            "-o",
            str(folder / "a.trace"),
        )
        output = verb("trace", *options, folder=tmp_path)
        assert list(folder.iterdir()) == []
    assert output.code == ExitCode.OUTPUT_ERROR
    saved = re.search(
        r"No space left on device\. What was recorded was saved as (\S+) instead\.\n$",
        output.stderr,
    )
    assert saved, output.stderr
    assert Path(saved[1]).parent == tmp_path
    assert len(STATES.findall(parsed(Path(saved[1])))) > 20


@pytest.mark.full
def test_hostile_names_are_text(tmp_path: Path) -> None:
    pages = {name: tmp_path / f"a.{name}" for name in ("html", "perfetto", "trace")}
    with hostile_target(tmp_path) as target:
        for path in pages.values():
            output = trace(str(target.pid), "-d", "0.2", "--waits-for", "-o", str(path))
            assert output.code == ExitCode.OK, output.stderr
            for line in (output.stdout + output.stderr).split("\n"):
                assert line.isprintable()
            assert MARK in output.stdout
    page = pages["html"].read_text()
    assert MARK in page
    assert not RAW & set(page)
    assert page.lower().count("<script") == page.lower().count("</script")
    assert "<img" not in page
    assert MARK in str(perfetto(pages["perfetto"]))
    assert STATES.search(parsed(pages["trace"]))
