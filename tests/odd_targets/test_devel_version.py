"""Programs of a development version of Go, whose runtime may have any layout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from symbolizer import GoVersion
from tests.kernel.programs import program, with_version
from tests.kernel.refusal import refused
from tests.kernel.verbs import verb
from tests.targets_run import Target

DEVELOPMENT = (
    "go1.27-devel_36863d6194 Thu Nov 6 15:00:04 2025 -0800",  # since Go 1.25
    "devel go1.27-36863d6194 Thu Nov 6 15:00:04 2025 -0800",
    "go1.27-20260301-RC00 cl/123456789 +36863d6194",
    "go1.27-devel_36863d6194 X:nodwarf5",
)
RELEASES = (
    "go1.27.3",
    "go1.27.3-1.fc44",
    "go1.27.0",
    "go1.20",
    "go1.27.3 (Red Hat 1.27.3-1.el10)",
    "go1.27.3 X:nodwarf5",
    "go1.27.3-X:nodwarf5",
    "go1.27-X:nodwarf5",
)


@pytest.mark.parametrize("text", DEVELOPMENT)
def test_a_development_version_is_not_a_release(text: str) -> None:
    version = GoVersion.parse(text)
    assert (version.minor, version.stage, version.text) == (27, "devel", text)
    assert version < GoVersion.parse("go1.27rc1")


@pytest.mark.parametrize("text", RELEASES)
def test_a_release_with_a_suffix_is_one(text: str) -> None:
    assert not GoVersion.parse(text).stage


def test_a_candidate_with_a_suffix_is_one() -> None:
    assert GoVersion.parse("go1.27rc1-fips").stage == "rc"


@pytest.mark.target("development versions", "CPU profile; `--allow-unknown-go` tries the rest")
def test_its_program_is_refused_by_name_and_can_be_tried(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    copy = with_version(program("sleeper"), tmp_path, "go1.27-devel_36863d6194")
    with Target.start(copy) as target:
        output = refused(ExitCode.UNSUPPORTED_GO, "--pid", str(target.pid), folder=tmp_path / "out")
        rows = json.loads(verb("list", "--json", "--name", "sleeper").stdout)["processes"]
        dumped = verb("dump", "--pid", str(target.pid), "--allow-unknown-go")
    assert "built with go1.27-devel_36863d6194, whose runtime layout is unknown" in output
    assert "--allow-unknown-go" in output
    (row,) = (row for row in rows if row["pid"] == target.pid)
    assert not row["supported"]
    assert dumped.code == ExitCode.OK
    assert "go1.27-devel_36863d6194 is not known and was read as Go 1.27" in dumped.stderr
