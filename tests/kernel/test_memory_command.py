"""`ebpfprof memory`, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from ebpfprof.errors import ExitCode
from tests.builds import NEWEST, versions
from tests.differential.test_memory import KEPT, running
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.kernel.screens import screen
from tests.targets_run import Target

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "memory.schema.json").read_text())
COMMAND = (sys.executable, "-m", "ebpfprof", "memory")


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)


@pytest.fixture
def target() -> Iterator[Target]:
    with running() as target:
        target.ask(f"keep {KEPT}", "done")
        target.ask("gc", "done")
        yield target


def test_it_fits_a_terminal(target: Target, tmp_path: Path) -> None:
    with screen(tmp_path, 80, 24, PYTHONPATH=str(ROOT)) as terminal:
        terminal.type(f"clear; {' '.join(COMMAND)} {target.pid}; echo status $?")
        terminal.wait_for("^status 0$")
        shown = terminal.text()
    assert f"Memory of process {target.pid} (memory, go1.27.3):" in shown
    assert "main.record" in shown
    assert "2048 B" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert not has_probes(target.pid)


@pytest.mark.parametrize("version", versions("1.19", NEWEST))
def test_json_is_as_its_schema_says(version: str) -> None:
    with running(version) as target:
        target.ask(f"keep {KEPT}", "done")
        finished = ran(str(target.pid), "--json")
    assert finished.returncode == ExitCode.OK, finished.stderr
    (line,) = finished.stdout.splitlines()
    found = json.loads(line)
    jsonschema.validate(found, SCHEMA)
    sizes = {each["size_bytes"]: each["objects"] for each in found["sizes"]}
    assert sizes[2048] >= KEPT
    assert (found["types"] is None) == (version == "1.19")


def test_one_that_fails_does_not_keep_others_back(target: Target) -> None:
    with Target.start(Path("/bin/cat"), ready=None) as other:
        finished = ran("--pid", str(other.pid), "--pid", str(target.pid), "--json")
    assert finished.returncode == ExitCode.NOT_GO_PROGRAM
    failed, found = map(json.loads, finished.stdout.splitlines())
    for each in (failed, found):
        jsonschema.validate(each, SCHEMA)
    assert failed["exit_code"] == ExitCode.NOT_GO_PROGRAM
    assert found["pid"] == target.pid


def test_a_process_that_is_not_there() -> None:
    finished = ran("999999999")
    assert finished.returncode in (ExitCode.NO_SUCH_PROCESS, ExitCode.USAGE)
    assert "Traceback" not in finished.stderr


def test_a_program_without_anything_of_that_kind() -> None:
    """The linker leaves nothing out that this needs: also a program of a few lines has it."""
    with Target.start(program("nopprof")) as target:
        finished = ran(str(target.pid))
    assert finished.returncode == ExitCode.OK, finished.stderr
    assert "Objects" in finished.stdout
