"""The runtime's list of goroutines: corrupt, changing or too long."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.goruntime.goroutines import table
from ebpfprof.goruntime.goroutines.parked import parked_goroutines
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.codeanalysis.globals import allgs_address
from tests.builds import NEWEST
from tests.kernel.parked_program import all_goroutines, expected, facts, poke, running, word
from tests.kernel.verbs import verb
from tests.recorder import names_in, recording

BOTH = ("--profile", "block,mutex")


def test_a_corrupt_goroutine_list_is_refused() -> None:
    with running(NEWEST, "plain") as run:
        poke(run.target.pid, allgs_address(run.go.binary) + run.go.load_bias + 16, 0)
        with pytest.raises(UnreadableMemory, match=r"makes no sense: .* Try again"):
            parked_goroutines(run.go)
        run.target.kill()


def test_dump_refuses_a_corrupt_goroutine_list() -> None:
    with running(NEWEST, "plain") as run:
        poke(run.target.pid, allgs_address(run.go.binary) + run.go.load_bias + 16, 0)
        output = verb("dump", "--pid", str(run.target.pid))
        run.target.kill()
    assert output.code == ExitCode.FAILURE
    assert "makes no sense" in output.stderr
    assert "Traceback" not in output.stderr


def test_a_goroutine_profile_without_the_list_says_why_it_is_empty(tmp_path: Path) -> None:
    with running(NEWEST, "plain") as run:
        with recording(run.target.pid, tmp_path, "--profile", "goroutine,block") as recorder:
            poke(run.target.pid, allgs_address(run.go.binary) + run.go.load_bias + 16, 0)
            recorder.interrupt()
            finished = recorder.finish()
        run.target.kill()
    assert finished.code == ExitCode.FAILURE
    assert "makes no sense" in finished.stderr
    assert "This is a bug" not in finished.stderr
    assert names_in(tmp_path) == {
        f"parked-{run.target.pid}.{kind}.pb.gz" for kind in ("block", "goroutine")
    }


def test_profiles_are_written_without_the_goroutine_list(tmp_path: Path) -> None:
    with running(NEWEST, "plain") as run:
        with recording(run.target.pid, tmp_path, "--open", "--by-lock", *BOTH) as recorder:
            poke(run.target.pid, allgs_address(run.go.binary) + run.go.load_bias + 16, 0)
            recorder.interrupt()
            finished = recorder.finish()
        run.target.kill()
    assert finished.code == ExitCode.FAILURE
    assert names_in(tmp_path) == {
        f"parked-{run.target.pid}.{kind}.pb.gz" for kind in ("block", "mutex", "open")
    }
    assert finished.stdout.decode().count("Written: ") == 3
    assert finished.stdout.decode().count("Next:") == 1
    assert "Try again; if that does not help, record without --open" in finished.stderr
    assert "This is a bug" not in finished.stderr
    (path,) = tmp_path.glob("*.open.pb.gz")
    comments = pprof.decode(path.read_bytes()).comments
    assert any(comment.startswith("open waits are missing: The list of ") for comment in comments)


def test_the_scan_waits_for_a_changing_goroutine_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that changes the list may have lost its processor in between."""
    with running(NEWEST, "plain") as run:
        everything = expected(run)
        capacity_at = allgs_address(run.go.binary) + run.go.load_bias + 16
        memory = run.go.target.memory
        capacity = word(memory, capacity_at)
        poke(run.target.pid, capacity_at, 0)
        pauses: list[float] = []

        def sleep(pause_s: float) -> None:
            pauses.append(pause_s)
            if len(pauses) == 3:
                poke(run.target.pid, capacity_at, capacity)

        monkeypatch.setattr(time, "sleep", sleep)
        assert facts(run, parked_goroutines(run.go)) == everything
        assert pauses == sorted(pauses)


def test_goroutines_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(NEWEST, "plain") as run:
        memory = run.go.target.memory
        total = len(all_goroutines(run, memory))
        monkeypatch.setattr(table, "MAX_GOROUTINES", 10)
        parked = parked_goroutines(run.go)
        assert parked.unreadable == total - 10
        assert len(parked.goroutines) <= 10
