"""Outputs of recorded inputs: byte for byte as in the golden files.

The kernel's maps were saved once (tests/recorded/record.py). Here they go through all of the code
behind the kernel, with an image of the very program that was recorded; and through commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.recorded import commands, outputs
from tests.recorded.program import PROGRAMS, Program

ALL = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
SCREENS = tuple(commands.golden_name(name) for name in commands.COMMANDS)


@pytest.fixture(scope="module")
def found() -> Mapping[str, bytes]:
    return outputs.all_outputs()


@pytest.mark.machine
@ALL
def test_the_program_is_the_recorded_one(program: Program, tmp_path: Path) -> None:
    built = program.build(tmp_path)
    program.require_recorded(built)


@pytest.mark.machine
def test_the_program_has_the_same_bytes_wherever_it_is_built(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "größe of another checkout"
    here.mkdir()
    elsewhere.mkdir()
    program = PROGRAMS[0]
    assert program.digest(program.build(elsewhere)) == program.digest(program.build(here))


def test_each_output_has_a_golden_file(found: Mapping[str, bytes]) -> None:
    assert sorted(found) == sorted(outputs.EVERY)
    names = sorted(path.name for path in outputs.GOLDEN.iterdir())
    assert names == sorted((*outputs.EVERY, *SCREENS))


@pytest.mark.parametrize("name", outputs.EVERY)
def test_outputs_equal_the_golden_files(found: Mapping[str, bytes], name: str) -> None:
    compare(name, found[name])


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_commands_show_what_the_golden_files_have(name: str) -> None:
    compare(commands.golden_name(name), commands.output_of(commands.COMMANDS[name]))


WIDER = ("history-compare",)
"""Its tables have more columns of numbers than a terminal of 80 columns has room for."""


@pytest.mark.parametrize(
    "name",
    [name for name, each in commands.COMMANDS.items() if each.terminal and name not in WIDER],
)
def test_lines_fit_the_terminal_except_commands_to_type(name: str) -> None:
    columns, _ = commands.TERMINAL
    text = (outputs.GOLDEN / commands.golden_name(name)).read_text()
    shown = [line for line in text.splitlines()[1:] if not line.startswith("    ebpfprof ")]
    assert [line for line in shown if len(line) > columns] == []


def compare(name: str, output: bytes) -> None:
    golden = outputs.GOLDEN / name
    assert golden.is_file(), f"{golden} is missing: python -m tests.recorded.record --golden"
    difference = outputs.difference(name, golden.read_bytes(), output)
    assert not difference, difference
