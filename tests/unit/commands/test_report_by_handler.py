"""`report --by-handler` and `--handler`, on a profile that has no labels of handlers."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ebpfprof.commands.cli import cli
from ebpfprof.errors import InvalidProfile
from ebpfprof.export import pprof
from ebpfprof.profile.handlers import HANDLER
from ebpfprof.profile.model import Frame, Label, Location, Sample
from ebpfprof.profilers.waits.kinds import BLOCK

FUNC = "net/http.HandlerFunc.ServeHTTP"
MS = 1_000_000


def sample(*functions: str, ms: int) -> Sample:
    locations = tuple(
        Location(hash(name) % (1 << 40) + 1, None, (Frame(name, "/src/shop.go", 7),))
        for name in functions
    )
    return Sample(locations, (1, ms * MS))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "waits.pb.gz"
    samples = [
        sample("sync.(*Mutex).Lock", "main.(*Shop).checkout", FUNC, ms=60),
        sample("runtime.chanrecv1", "main.list", FUNC, ms=30),
        sample("runtime.chanrecv1", "main.refresh", "main.main", ms=10),
    ]
    profile = BLOCK.make_profile(samples, [], time_ns=1, duration_ns=1)
    path.write_bytes(pprof.encode(profile))
    return path


def run(saved: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["report", str(saved), *options])


def test_a_table_of_handlers(saved: Path) -> None:
    lines = [" ".join(line.split()) for line in run(saved, "--by-handler").output.splitlines()]
    assert "60.0 ms 60.0% 1 main.(*Shop).checkout" in lines
    assert "locks 100 %" in lines
    assert "10.0 ms 10.0% 1 (outside of handlers)" in lines


def test_only_what_one_handler_did(saved: Path) -> None:
    shown = run(saved, "--handler", "checkout").output
    assert "main.(*Shop).checkout" in shown
    assert "main.list" not in shown
    assert "100.0%" in shown


def test_other_formats_get_labels(saved: Path, tmp_path: Path) -> None:
    written = tmp_path / "labelled.pb.gz"
    assert run(saved, "--by-handler", "-o", str(written)).exit_code == 0
    checkout, others, none = pprof.decode(written.read_bytes()).samples
    assert checkout.labels == (Label(HANDLER, "main.(*Shop).checkout"),)
    assert others.labels == (Label(HANDLER, "main.list"),)
    assert none.labels == ()
    written = tmp_path / "one.txt"
    assert run(saved, "--by-handler", "--handler", "list", "-o", str(written)).exit_code == 0
    assert "main.list" in written.read_text()
    assert "checkout" not in written.read_text()


def test_an_unknown_handler_is_an_error_that_names_those_there_are(saved: Path) -> None:
    ran = run(saved, "--handler", "pay")
    assert isinstance(ran.exception, InvalidProfile)
    assert "'pay'" in str(ran.exception)
    assert "main.(*Shop).checkout, main.list" in str(ran.exception)
