"""Builds that people have, each held against Go's own profiles of the same run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.builds import NEWEST
from tests.differential import (
    test_block,
    test_goroutine,
    test_heap,
    test_memory,
)
from tests.toolchains import toolchain
from tests.tools.target_table import ROOT

pytestmark = pytest.mark.full

Check = Callable[[str, str, Path], None]


def check_block(version: str, mode: str, folder: Path) -> None:
    """Go ends a program that ranks locks when it selects among more than ten channels."""
    if "staticlockranking" not in mode:
        test_block.test_every_operation_is_counted_as_by_go(version, mode, folder)
        return
    program = toolchain(version).build(test_block.BLOCKOPS, mode)
    ours, _ = test_block.compare(program, folder, "-only=^[a-rt-z]")
    assert len(ours.samples) > 40


CHECKS: Final[dict[str, Check]] = {
    "block": check_block,
    "goroutine": test_goroutine.test_stacks_and_counts_equal_gos,
    "heap": lambda version, mode, folder: test_heap.test_every_value_equals_gos(
        version, mode, test_heap.EVERY_ALLOCATION, folder
    ),
    "memory": lambda version, mode, _: test_memory.test_statistics_equal_gos(version, mode),
}

COMPARED: Final = "block, goroutine, heap, memory; the rest is not compared"
MODES: Final = (
    *("-race", "-cover", "-asan", "-msan", "GOAMD64=v3", "GOFIPS140=latest", "GOFIPS140=v1.0.0"),
    "GOEXPERIMENT=staticlockranking",
)


@pytest.fixture(scope="module", autouse=True)
def compilers() -> None:
    """Clang, which -msan needs."""
    subprocess.run([ROOT / "tests/setup.sh", "builds"], check=True)


@pytest.mark.target("`-race`", COMPARED)
@pytest.mark.target("`-cover`", COMPARED)
@pytest.mark.target("`-asan`", COMPARED)
@pytest.mark.target("`-msan`", COMPARED)
@pytest.mark.target("GOAMD64=v3", COMPARED)
@pytest.mark.target("GOFIPS140", COMPARED)
@pytest.mark.target("`GOEXPERIMENT=staticlockranking`, Go 1.24 and newer", COMPARED)
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("mode", MODES)
def test_profiles_equal_gos(
    mode: str, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GORACE", "exitcode=0")  # a target may have races on purpose
    check(NEWEST, mode, tmp_path)
