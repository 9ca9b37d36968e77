"""Arguments that are wrong are refused before a probe is compiled or a process is opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from ebpfprof.commands.cli import cli
from ebpfprof.errors import EbpfprofError, NoSuchProcess, OutputError
from ebpfprof.process import process
from ebpfprof.recording import live
from tests.kernel.refusal import IMPOSSIBLE_PID

US = str(os.getpid())


@pytest.fixture(autouse=True)
def nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("It was compiled, or a process was opened.")

    monkeypatch.setattr(live, "LoadedProfilers", refuse)
    monkeypatch.setattr(process.Target, "__init__", refuse)


def failure(*arguments: str) -> EbpfprofError:
    result = CliRunner().invoke(cli, arguments)
    assert isinstance(result.exception, EbpfprofError), result.output or result.exception
    return result.exception


@pytest.mark.parametrize("verb", ["attach", "dump", "memory", "serve", "top", "trace"])
def test_a_process_that_is_not_there(verb: str) -> None:
    found = failure(verb, "--pid", US, "--pid", str(IMPOSSIBLE_PID))
    assert isinstance(found, NoSuchProcess)
    assert f"no process {IMPOSSIBLE_PID}" in str(found)


@pytest.mark.parametrize("verb", ["attach", "trace"])
def test_an_output_file_in_a_folder_that_is_not_there(verb: str, tmp_path: Path) -> None:
    found = failure(verb, "--pid", US, "-o", str(tmp_path / "none" / "x.html"))
    assert isinstance(found, OutputError)
    assert "Cannot open the directory of" in str(found)


@pytest.mark.parametrize(("verb", "target"), [("attach", ("--pid", US)), ("run", ("--", "true"))])
def test_an_output_file_that_is_there(verb: str, target: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "x.pb.gz").touch()
    found = failure(verb, "-o", str(tmp_path / "x.pb.gz"), *target)
    assert isinstance(found, OutputError)
    assert "is there already" in str(found)
