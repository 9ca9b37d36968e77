"""The goroutine profile, from outside and by Go itself, of a program whose goroutines wait."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.builds import GENERIC, NEWEST, builds, versions
from tests.differential.test_tracebacks import own, still
from tests.kernel.parked_program import running
from tests.kernel.programs import program
from tests.recorder import names_in, only_profile, run

MAIN = "main.main"
Stack = tuple[tuple[tuple[str, str, int], ...], ...]


def stacks(profile: Profile) -> Counter[Stack]:
    """How many goroutines have each stack, leaf first, but for the main goroutine's.

    A stack has a tuple for each physical frame, with the calls that were inlined there.
    """
    found = Counter[Stack]()
    for sample in profile.samples:
        stack = tuple(
            tuple((f.function, f.file, f.line) for f in location.frames)
            for location in sample.locations
        )
        if MAIN not in {function for frames in stack for function, _, _ in frames}:
            found[stack] += sample.values[0]
    return found


@pytest.mark.parametrize(("version", "mode"), builds())
def test_stacks_and_counts_equal_gos(version: str, mode: str, tmp_path: Path) -> None:
    go = tmp_path / "go.pb.gz"
    folder = tmp_path / "ours"
    folder.mkdir()
    with running(version, mode, f"-own={go}") as target:
        pid = str(target.target.pid)
        finished = run("--pid", pid, "--profile", "goroutine", "-d", "0.1", folder=folder)
        target.target.kill()
    assert finished.code == ExitCode.OK, finished.stderr
    ours, theirs = only_profile(folder), pprof.decode(go.read_bytes())
    assert ours.kind == theirs.kind == "goroutine"
    assert [(each.type, each.unit) for each in ours.sample_types] == [("goroutine", "count")]
    expected = stacks(theirs)
    assert sum(expected.values()) > 60
    assert stacks(ours) == expected


@pytest.mark.parametrize("version", versions(*GENERIC))
def test_stacks_below_a_fault_equal_gos(version: str, tmp_path: Path) -> None:
    """A fault is at its instruction, not behind a call, and its function may have no frame."""
    with still(program("tracebacks", version)) as target:
        finished = run(
            *("--pid", str(target.pid), "--profile", "goroutine", "-d", "0.1"), folder=tmp_path
        )
        assert finished.code == ExitCode.OK, finished.stderr
        ours = only_profile(tmp_path)
        theirs = pprof.decode(own(target, 0, tmp_path))
    expected = faults(theirs)
    assert sum(expected.values()) >= 2
    assert faults(ours) == expected


def faults(profile: Profile) -> Counter[Stack]:
    """The stacks with a fault."""
    return Counter(
        {
            stack: count
            for stack, count in stacks(profile).items()
            if any(function == "runtime.sigpanic" for frames in stack for function, _, _ in frames)
        }
    )


def test_it_is_recorded_beside_others_and_shown(tmp_path: Path) -> None:
    with running(NEWEST, "plain") as target:
        pid = target.target.pid
        finished = run(
            "--pid", str(pid), "--profile", "block,goroutine", "-d", "0.2", folder=tmp_path
        )
        target.target.kill()
    assert finished.code == ExitCode.OK, finished.stderr
    assert names_in(tmp_path) == {f"parked-{pid}.{kind}.pb.gz" for kind in ("block", "goroutine")}
    shown = finished.stdout.decode()
    assert f"Goroutines of process {pid} (parked) after" in shown
    assert "Goroutines  Share  Operation" in shown
    assert "select           main.selectTwo" in shown or "main.selectTwo" in shown
