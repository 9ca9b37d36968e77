"""Outputs of recorded inputs: byte for byte as in the golden files.

The kernel's maps were saved once (tests/recorded/record.py). Here they go through all of the code
behind the kernel, beside a process of the very program that was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.recorded import outputs
from tests.recorded.program import build, digest, require_recorded

pytestmark = pytest.mark.machine


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def found(program: Path) -> Mapping[str, bytes]:
    require_recorded(program)
    return outputs.all_outputs(program)


def test_the_program_is_the_recorded_one(program: Path) -> None:
    require_recorded(program)


def test_the_program_has_the_same_bytes_wherever_it_is_built(program: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "größe of another checkout"
    elsewhere.mkdir()
    assert digest(build(elsewhere)) == digest(program)


def test_each_output_has_a_golden_file(found: Mapping[str, bytes]) -> None:
    assert sorted(found) == sorted(outputs.EVERY)
    assert sorted(path.name for path in outputs.GOLDEN.iterdir()) == sorted(outputs.EVERY)


@pytest.mark.parametrize("name", outputs.EVERY)
def test_outputs_equal_the_golden_files(found: Mapping[str, bytes], name: str) -> None:
    golden = outputs.GOLDEN / name
    assert golden.is_file(), f"{golden} is missing: python -m tests.recorded.record --golden"
    difference = outputs.difference(name, golden.read_bytes(), found[name])
    assert not difference, difference
