"""Builds that people have, each held against Go's own profiles of the same run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.builds import NEWEST, in_full
from tests.differential import (
    test_block,
    test_cpu,
    test_execution_trace,
    test_goroutine,
    test_heap,
    test_memory,
    test_mutex,
)
from tests.kernel import test_references_by_go
from tests.toolchains import toolchain
from tests.tools.target_table import ROOT

Check = Callable[[str, str, Path], None]


def check_block(version: str, mode: str, folder: Path) -> None:
    """Go ends a program that ranks locks when it selects among more than ten channels."""
    if "staticlockranking" not in mode:
        test_block.test_every_operation_is_counted_as_by_go(version, mode, folder)
        return
    program = toolchain(version).build(test_block.BLOCKOPS, mode)
    ours, _ = test_block.compare(program, folder, "-only=^[a-rt-z]")
    assert len(ours.samples) > 40


def check_cpu(version: str, mode: str, folder: Path) -> None:
    """The race detector is C on another stack: Go's own profile has no callers there, either."""
    if mode != "-race":
        test_cpu.test_stacks_equal_gos_in_every_build_mode(version, mode, folder)
        return
    program = toolchain(version).build(test_cpu.CPUOPS, mode)
    run = test_cpu.record(program, folder, test_cpu.SHALLOW, test_cpu.SHORT_MS)
    outside = [
        stack
        for stack in run.ours
        if not test_cpu.is_incomplete(stack) or "." in stack.functions[0]
    ]
    assert 0 < len(outside) < len(run.ours)
    test_cpu.check_stacks(replace(run, ours=outside), program)


def check_trace(version: str, mode: str, folder: Path) -> None:
    """Go's tracer and ours see the same, of what takes locks."""
    test_execution_trace.check_changes("locks", version, folder, mode=mode)


CHECKS: Final[dict[str, Check]] = {
    "block": check_block,
    "mutex": test_mutex.test_every_release_is_counted_as_by_go,
    "goroutine": test_goroutine.test_stacks_and_counts_equal_gos,
    "heap": lambda version, mode, folder: test_heap.test_every_value_equals_gos(
        version, mode, test_heap.EVERY_ALLOCATION, folder
    ),
    "memory": lambda version, mode, _: test_memory.test_statistics_equal_gos(version, mode),
}

TIMES: Final[dict[str, Check]] = {
    "cpu": check_cpu,
    "trace": check_trace,
}

COMPARED: Final = "block, mutex, goroutine, heap, memory, CPU, traces; the rest is not compared"
PROFILES: Final = "block, mutex, goroutine, heap, memory; the rest is not compared"
REFERENCES: Final = "block, mutex, goroutine, heap, memory, references; the rest is not compared"
MODES: Final = (
    *("-race", "-cover", "-asan", "-msan", "GOAMD64=v3", "GOFIPS140=latest", "GOFIPS140=v1.0.0"),
    "GOEXPERIMENT=staticlockranking",
)
# Those that change the runtime: locks, goroutines, what is allocated.
EXPERIMENTS: Final = (
    *((version, "staticlockranking") for version in ("1.20", "1.21", "1.22")),
    *(("1.22", each) for each in ("noexectracer2", "pagetrace")),
    ("1.23", "aliastypeparams"),
    *(("1.24", each) for each in ("nospinbitmutex", "synctest")),
    ("1.25", "jsonv2"),
    ("1.26", "goroutineleakprofile"),
    *((NEWEST, each) for each in ("simd", "nosizespecializedmalloc")),
)
# Those that change the collector, objects or maps.
OF_OBJECTS: Final = (
    ("1.22", "noallocheaders"),
    ("1.24", "noswissmap"),
    *(("1.25", each) for each in ("noswissmap", "greenteagc")),
    ("1.26", "nogreenteagc"),
    *((NEWEST, each) for each in ("nogreenteagc", "arenas", "runtimesecret", "mapsplitgroup")),
    (NEWEST, "runtimefreegc"),
)
IN_GATE: Final = (NEWEST, "nogreenteagc", "memory")
"""The collector's own statistics lie elsewhere then."""


@pytest.fixture(scope="module")
def compilers() -> None:
    """Clang, which -msan needs."""
    subprocess.run([ROOT / "tests/setup.sh", "builds"], check=True)


@pytest.mark.target(
    "`-race`",
    "block, mutex, goroutine, heap, memory, traces, CPU (but samples inside the race detector, "
    "which have no callers); the rest is not compared",
)
@pytest.mark.target("`-cover`", COMPARED)
@pytest.mark.target("`-asan`", COMPARED)
@pytest.mark.target("`-msan`", COMPARED)
@pytest.mark.target("GOAMD64=v3", COMPARED)
@pytest.mark.target("GOFIPS140", COMPARED)
@pytest.mark.target("`GOEXPERIMENT=staticlockranking`, Go 1.24 and newer", COMPARED)
@pytest.mark.full
@pytest.mark.usefixtures("compilers")
@pytest.mark.parametrize("check", [*CHECKS, *TIMES])
@pytest.mark.parametrize("mode", MODES)
def test_profiles_equal_gos(
    mode: str, check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GORACE", "exitcode=0")  # a target may have races on purpose
    (CHECKS | TIMES)[check](NEWEST, mode, tmp_path)


@pytest.mark.target("`GOEXPERIMENT=staticlockranking`, Go 1.20 to 1.22", PROFILES)
@pytest.mark.target("`GOEXPERIMENT=noexectracer2`, `pagetrace`, Go 1.22", PROFILES)
@pytest.mark.target("`GOEXPERIMENT=aliastypeparams`, Go 1.23", PROFILES)
@pytest.mark.target("`GOEXPERIMENT=nospinbitmutex`, `synctest`, Go 1.24", PROFILES)
@pytest.mark.target("`GOEXPERIMENT=jsonv2`, Go 1.25", PROFILES)
@pytest.mark.target("`GOEXPERIMENT=goroutineleakprofile`, Go 1.26", PROFILES)
@pytest.mark.target("`GOEXPERIMENT=simd`, `nosizespecializedmalloc`, Go 1.27", PROFILES)
@pytest.mark.target("`GOEXPERIMENT=noallocheaders`, Go 1.22", REFERENCES)
@pytest.mark.target("`GOEXPERIMENT=noswissmap`, Go 1.24 and 1.25", REFERENCES)
@pytest.mark.target("`GOEXPERIMENT=greenteagc`, `nogreenteagc`, Go 1.25 to 1.27", REFERENCES)
@pytest.mark.target(
    "`GOEXPERIMENT=arenas`, `runtimesecret`, `mapsplitgroup`, `runtimefreegc`, Go 1.27", REFERENCES
)
@pytest.mark.parametrize(
    ("version", "experiment", "check"),
    [
        IN_GATE,
        *in_full(*((*each, check) for each in EXPERIMENTS for check in CHECKS)),
        *in_full(
            *(
                (*each, check)
                for each in OF_OBJECTS
                for check in (*CHECKS, "references")
                if (*each, check) != IN_GATE
            )
        ),
    ],
)
def test_profiles_of_an_experiment_equal_gos(
    version: str, experiment: str, check: str, tmp_path: Path
) -> None:
    checks = CHECKS | {"references": test_references_by_go.check_references}
    checks[check](version, f"GOEXPERIMENT={experiment}", tmp_path)
