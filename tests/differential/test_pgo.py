"""Our CPU profile as input of the compiler, against Go's own of the same seconds."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.builds import versions
from tests.kernel.programs import NEWEST, TARGETS, program
from tests.recorder import end, recording
from tests.targets_run import Target
from tests.toolchains import toolchain

pytestmark = pytest.mark.full
SOURCE = TARGETS / "hotcalls"
SECONDS = 3
HZ = "499"
HOT = 0.05
# Go takes 100 samples a second of CPU time: the standard deviation of a share is 2.7 points.
LIMIT = 0.1
DRAW, COMPUTE = "main.draw", "main.compute"
BY_SIGNAL = "runtime.asyncPreempt"
SYSTEM_CALL = ".Syscall6"


class Edge(NamedTuple):
    """A call as the compiler knows it; the line counts from that of the caller."""

    caller: str
    callee: str
    line: int


@dataclass(frozen=True)
class Files:
    """Profiles of one program at the same time, and of a second process of it."""

    gos: Path
    pprof: Path
    pgo: Path
    other: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return recorded(NEWEST, tmp_path_factory.mktemp("pgo"))


def recorded(minor: str, folder: Path) -> Files:
    gos, pprof, other = folder / "go.prof", folder / "our.pb.gz", folder / "other.pgo"
    with Target.start(program("hotcalls", minor)) as target:
        target.ask(f"profile {gos}", "begun")
        work(target, pprof, SECONDS)
        target.ask("end", "ended")
        work(target, other, 1)
        target.kill()
    return Files(gos, pprof, report(folder / "default.pgo", pprof), other)


def work(target: Target, output: Path, seconds: int) -> None:
    """Record the target while it works."""
    arguments = ("--profile", "cpu", "--hz", HZ, "-o", str(output))
    with recording(target.pid, output.parent, *arguments) as recorder:
        target.ask(f"work {seconds}", "done")
        end(recorder)


def report(output: Path, *files: Path) -> Path:
    merge = ("--merge",) if len(files) > 1 else ()
    command = (sys.executable, "-m", "ebpfprof", "report", *merge, *files, "-o", output)
    subprocess.run(command, check=True)
    return output


def edges(path: Path) -> Counter[Edge]:
    """The weights of calls, as the compiler gets them (cmd/preprofile, Go 1.23 on)."""
    text = toolchain(NEWEST).go("tool", "preprofile", "-i", path)
    head, *lines = text.splitlines()
    assert head == "GO PREPROFILE V1"
    weights: Counter[Edge] = Counter()
    for caller, callee, numbers in zip(*[iter(lines)] * 3, strict=True):
        line, weight = map(int, numbers.split())
        weights[Edge(caller, callee, line)] = weight
    return weights


def shares(path: Path) -> dict[Edge, float]:
    """Of the weight of all calls but those that a signal inserts, as Go's own sampling does."""
    weights = edges(path)
    for edge in list(weights):
        if edge.callee == BY_SIGNAL:
            del weights[edge]
    return {edge: weight / weights.total() for edge, weight in weights.items()}


def check_hot_edges(of: Files) -> None:
    """Each call that is hot in one is in the other, as hot, and in the same order."""
    gos, ours = shares(of.gos), shares(of.pgo)
    hot = {edge for found in (gos, ours) for edge, share in found.items() if share >= HOT}
    assert {edge.caller for edge in hot} >= {DRAW, COMPUTE}
    apart = {
        edge: (gos.get(edge, 0.0), ours.get(edge, 0.0))
        for edge in hot
        if abs(gos.get(edge, 0.0) - ours.get(edge, 0.0)) > LIMIT
    }
    assert apart == {}
    for one in hot:
        for two in hot:
            if gos[one] > gos[two] + 2 * LIMIT:
                assert ours[one] > ours[two]


@pytest.mark.target("PGO with our CPU profile (`-o default.pgo`)", "everything")
def test_the_compiler_gets_the_hot_edges_of_gos_own_profile(files: Files) -> None:
    check_hot_edges(files)


@pytest.mark.parametrize("minor", versions("1.21", "1.22", "1.25"))
def test_of_older_versions_too(minor: str, tmp_path: Path) -> None:
    check_hot_edges(recorded(minor, tmp_path))


def test_what_the_kernel_did_is_not_in_the_weights(files: Files) -> None:
    """In a pprof file it is: the innermost call of such a sample is not Go's."""
    ours, whole = edges(files.pgo), edges(files.pprof)
    assert any("." not in edge.callee for edge in whole)
    assert all("." in name for edge in ours for name in edge[:2])
    calls = [edge for edge in ours if edge.callee.endswith(SYSTEM_CALL)]
    call = max(calls, key=ours.__getitem__)
    assert ours[call] > 2 * whole[call]


def test_merged_weights_are_sums(files: Files, tmp_path: Path) -> None:
    both = report(tmp_path / "default.pgo", files.pprof, files.other)
    assert edges(both) == edges(files.pgo) + edges(files.other)


def test_the_compiler_decides_by_it(files: Files, tmp_path: Path) -> None:
    """It inlines the hot call of a large function, and calls a method without the interface."""
    plain, guided = decisions("off", tmp_path), decisions(str(files.pgo), tmp_path)
    line = next(
        number
        for number, text in enumerate((SOURCE / "main.go").read_text().splitlines(), 1)
        if text.startswith("func compute(")
    )
    inlined = f"main.go:{line}:"
    wanted = [each for each in guided if inlined in each and "inlining call to sum" in each]
    assert len(wanted) == 2
    assert not [each for each in plain if "inlining call to sum" in each]
    assert any("PGO devirtualizing interface call" in each for each in guided)
    assert not any("PGO devirtualizing" in each for each in plain)


def decisions(profile: str, folder: Path) -> list[str]:
    """What the compiler says about the program, built with the profile."""
    go = toolchain(NEWEST)
    flags = (f"-pgo={profile}", "-gcflags=-m=2", "-buildvcs=false", "-o", folder / "program")
    done = subprocess.run(
        [go.goroot / "bin" / "go", "build", *flags, "."],
        cwd=SOURCE,
        env=go.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.splitlines()
