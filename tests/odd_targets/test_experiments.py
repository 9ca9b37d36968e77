"""Programs that were built with an experiment of Go (GOEXPERIMENT)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from symbolizer import GoVersion, UnsupportedGoVersion, layout_for
from tests.kernel.programs import program, with_version
from tests.kernel.refusal import refused
from tests.kernel.verbs import verb
from tests.targets_run import Target

RANKED = "go1.18.10 X:staticlockranking"


@pytest.mark.parametrize(
    "text",
    [
        RANKED,
        "go1.17.13 X:noregabiwrappers,noregabig,noregabireflect,noregabidefer,noregabiargs",
        "go1.24.1 X:nospinbitmutex",  # until 1.24.5 the struct had another size
        "go1.26.6 X:nogreenteagc,staticlockranking",
    ],
)
def test_an_experiment_with_an_unknown_layout_is_refused(text: str) -> None:
    version = GoVersion.parse(text)
    for is_allowed in (False, True):
        with pytest.raises(UnsupportedGoVersion, match="GOEXPERIMENT="):
            layout_for(version, allow_unknown_version=is_allowed)


@pytest.mark.parametrize("text", ["go1.27.3-X:nogreenteagc,simd", "go1.24.11 X:noswissmap"])
def test_an_experiment_with_the_usual_layout_is_known(text: str) -> None:
    version = GoVersion.parse(text)
    assert layout_for(version).is_of(version)


@pytest.mark.target(
    "`GOEXPERIMENT` that moves fields (noallocheaders, noexectracer2, pagetrace, nospinbitmutex, "
    "greenteagc, nogreenteagc)",
    "offsets are in the data",
)
@pytest.mark.parametrize(
    ("minor", "experiment", "struct"),
    [
        ("1.22", "noallocheaders", "heapArena"),
        ("1.22", "noexectracer2", "m"),
        *((minor, "pagetrace", "p") for minor in ("1.20", "1.21", "1.22")),
        ("1.24", "nospinbitmutex", "m"),
        ("1.24", "staticlockranking", "p"),
        ("1.27", "staticlockranking", "p"),
        ("1.25", "greenteagc", "p"),
        ("1.26", "nogreenteagc", "p"),
        ("1.27", "nogreenteagc", "p"),
    ],
)
def test_an_experiment_that_moves_fields_has_its_own_offsets(
    minor: str, experiment: str, struct: str
) -> None:
    usual = layout_for(GoVersion.parse(f"go{minor}.6"))
    for text in (f"go{minor}.6-X:{experiment}", f"go{minor}.6 X:simd,{experiment}"):
        other = layout_for(GoVersion.parse(text))
        assert other.is_of(GoVersion.parse(text))
        assert other.structs[struct] != usual.structs[struct]
        assert other.structs["g"] == usual.structs["g"]


@pytest.mark.full
@pytest.mark.target("`GOEXPERIMENT=staticlockranking`, Go 1.17 to 1.19 and 1.23", "CPU profile")
def test_lock_ranking_of_old_versions_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    copy = with_version(program("sleeper", "1.18"), tmp_path, RANKED)
    with Target.start(copy) as target:
        pid = str(target.pid)
        output = refused(ExitCode.UNSUPPORTED_GO, "--pid", pid, folder=tmp_path / "out")
        dumped = verb("dump", "--pid", pid)
        rows = json.loads(verb("list", "--json", "--name", "sleeper").stdout)["processes"]
    assert "built with GOEXPERIMENT=staticlockranking" in output
    assert "build it without that experiment; attach --profile cpu records" in output
    assert dumped.code == ExitCode.UNSUPPORTED_GO
    (row,) = (row for row in rows if row["pid"] == target.pid)
    assert not row["supported"]
    assert "GOEXPERIMENT=staticlockranking" in row["why_not"]
