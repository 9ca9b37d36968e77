"""Programs of Go 1.16, which passes arguments on the stack."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.kernel.programs import TARGETS
from tests.kernel.refusal import refused
from tests.kernel.verbs import verb
from tests.recorder import end, recording
from tests.targets_run import Target
from tests.toolchains import OLD_VERSION, Toolchain, install

pytestmark = pytest.mark.full

WHY = f"the program was built with go{OLD_VERSION}; Go 1.17 or newer is needed"
HOT = 0.05
# Go takes 100 samples a second for three seconds: a share of a half has an error of 3 points.
LIMIT = 0.1


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    program = Toolchain(OLD_VERSION, install(OLD_VERSION)).build(TARGETS / "hotcalls")
    with Target.start(program) as started:
        yield started


def shares(profile: Profile) -> dict[str, float]:
    """The share of CPU time of each function, by itself."""
    times = Counter[str]()
    for sample in profile.samples:
        times[sample.frames[0].function] += sample.values[1]
    return {function: ns / times.total() for function, ns in times.items()}


@pytest.mark.target("Go 1.16 and older", "CPU profile, with names unless stripped")
def test_its_cpu_profile_equals_gos(target: Target, tmp_path: Path) -> None:
    own, ours = tmp_path / "go.prof", tmp_path / "ours.pb.gz"
    options = ("--profile", "cpu", "--hz", "499", "--no-kernel", "-o", str(ours))
    target.ask(f"profile {own}", "begun")
    with recording(target.pid, tmp_path, *options) as recorder:
        target.ask("work 3", "done")
        said = " ".join(end(recorder).split())
    target.ask("end", "ended")
    assert said.count(WHY) == 1
    profile = pprof.decode(ours.read_bytes())
    assert any(WHY in comment for comment in profile.comments)
    gos, mine = shares(pprof.decode(own.read_bytes())), shares(profile)
    hot = {function for found in (gos, mine) for function, share in found.items() if share >= HOT}
    assert hot > {"main.sum"}
    apart = {f: (gos.get(f, 0.0), mine.get(f, 0.0)) for f in hot}
    assert {f: two for f, two in apart.items() if abs(two[0] - two[1]) > LIMIT} == {}


@pytest.mark.parametrize("kinds", ["default", "block", "heap", "goroutine", "wall"])
def test_other_profiles_are_refused(target: Target, kinds: str, tmp_path: Path) -> None:
    code, pid = ExitCode.UNSUPPORTED_GO, str(target.pid)
    output = refused(code, "--pid", pid, "--profile", kinds, folder=tmp_path)
    assert output.count(WHY) == 1
    assert "attach --profile cpu records a program of any version" in output
    assert "--allow-unknown-go" not in output


@pytest.mark.parametrize("name", ["dump", "memory", "explain", "trace", "doctor"])
def test_other_verbs_are_refused(target: Target, name: str, tmp_path: Path) -> None:
    output = verb(name, "--pid", str(target.pid), folder=tmp_path)
    assert output.code == ExitCode.UNSUPPORTED_GO
    assert " ".join(output.stderr.split()).count(WHY) == 1


def test_it_is_listed(target: Target) -> None:
    rows = json.loads(verb("list", "--json", "--name", "hotcalls").stdout)["processes"]
    (row,) = (row for row in rows if row["pid"] == target.pid)
    assert row["go_version"] == f"go{OLD_VERSION}"
    assert not row["supported"]
    assert row["why_not"] == WHY
