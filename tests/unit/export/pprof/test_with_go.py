"""What `go tool pprof` of the oldest and the newest Go makes of our files."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.toolchains import toolchain
from tests.unit.export.small_profile import MAIN, SMALL

pytestmark = pytest.mark.machine


def go_pprof(minor: str, tmp_path: Path, profile: Profile, *arguments: str) -> bytes:
    """Standard output of `go tool pprof`; it must not warn of anything."""
    path = tmp_path / "in.pb.gz"
    path.write_bytes(pprof.encode(profile))
    go = toolchain(minor)
    done = subprocess.run(
        [go.goroot / "bin" / "go", "tool", "pprof", *arguments, path],
        env={**go.environment(), "PPROF_TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    output = done.stderr.decode().splitlines()
    assert [line for line in output if not line.startswith("Generating report in ")] == []
    return done.stdout


GO = pytest.mark.parametrize("minor", ["1.19", "1.27"])


@GO
def test_gos_pprof_shows_the_top_without_a_warning(minor: str, tmp_path: Path) -> None:
    top = go_pprof(minor, tmp_path, SMALL, "-top").decode()
    assert "File: api" in top
    assert "Build ID: c0ffee" in top
    assert "every event was recorded" in top
    assert "Type: delay" in top
    assert "Duration: 30s, Total samples = 4800ns" in top
    rows = [" ".join(line.split()) for line in top.splitlines()]
    assert rows[-4:] == [
        "4500ns 93.75% 93.75% 4500ns 93.75% sync.(*Mutex).Lock (inline)",
        "300ns 6.25% 100% 300ns 6.25% runtime.chanrecv1",
        "0 0% 100% 4800ns 100% main.work",
        "0 0% 100% 4500ns 93.75% sync.(*RWMutex).Lock",
    ]


@GO
def test_gos_pprof_reads_the_frames_as_we_wrote_them(minor: str, tmp_path: Path) -> None:
    raw = go_pprof(minor, tmp_path, SMALL, "-raw").decode()
    lines = [" ".join(line.split()) for line in raw.replace(":0 s=", " s=").splitlines()]
    samples = lines.index("contentions/count delay/nanoseconds")
    assert lines[samples + 1 : samples + 3] == ["1 4500: 1 2", "2 300: 3 2"]
    locations = lines.index("Locations")
    assert lines[locations + 1 : locations + 5] == [
        "1: 0x401000 M=1 sync.(*Mutex).Lock /go/sync/mutex.go:46 s=45",
        "sync.(*RWMutex).Lock /go/sync/rwmutex.go:146 s=140",
        "2: 0x402000 M=1 main.work /src/main.go:12 s=10",
        "3: 0x403000 M=1 runtime.chanrecv1 /go/runtime/chan.go:442 s=0",
    ]
    assert "1: 0x400000/0x500000/0x1000 /srv/api c0ffee [FN]" in lines


@GO
def test_gos_pprof_gives_back_the_same_profile(minor: str, tmp_path: Path) -> None:
    profile = replace(
        SMALL, mappings=(MAIN,), samples=tuple(sorted(SMALL.samples, key=lambda s: -s.values[1]))
    )
    out = tmp_path / "out.pb.gz"
    go_pprof(minor, tmp_path, profile, "-proto", f"-output={out}")
    assert pprof.decode(out.read_bytes()) == profile


@GO
def test_gos_pprof_takes_an_empty_profile_without_a_warning(minor: str, tmp_path: Path) -> None:
    top = go_pprof(minor, tmp_path, replace(SMALL, samples=()), "-top").decode()
    assert "Total samples = 0" in top
