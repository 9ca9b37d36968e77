"""The threads of programs that hold them in known ways."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profilers.registry import kind_named
from ebpfprof.server import threads
from tests.builds import NEWEST, versions
from tests.go_target import read
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.recorder import recording
from tests.targets_run import Target

THREADS, THREADCREATE = kind_named("threads"), kind_named("threadcreate")
NUMBER = 7


@contextmanager
def running(version: str = NEWEST, mode: str = "plain") -> Iterator[Target]:
    with Target.start(program("threads", version, mode)) as target:
        yield target


def held(profile: Profile, state: str, function: str, column: int = 1) -> int:
    """How many threads are in the state, for goroutines with the function on their stacks."""
    return sum(
        sample.values[column]
        for sample in profile.samples
        if label(sample, "state") == state
        and function in {frame.function for frame in sample.frames}
    )


def label(sample: Sample, key: str) -> str:
    return next((str(each.value) for each in sample.labels if each.key == key), "")


def total(profile: Profile, column: int = 1) -> int:
    return sum(sample.values[column] for sample in profile.samples)


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


@pytest.mark.parametrize("version", versions())
def test_threads_in_system_calls_and_locked_ones(version: str) -> None:
    with running(version) as target:
        target.ask(f"read {NUMBER}", "done")
        target.ask(f"lock {NUMBER + 1}", "done")
        found = read(target.pid, threads.profile, THREADS)
        assert total(found) == threads_of(target.pid)
        assert not has_probes(target.pid)
    assert held(found, "syscall", "main.readPipe") == NUMBER
    assert held(found, "locked", "main.holdThread") == NUMBER + 1
    calls = {label(e, "syscall") for e in found.samples if "main.readPipe" in functions(e)}
    assert calls == {"read"}
    for name in ("sysmon", "templateThread"):
        assert held(found, "the runtime's own", f"[runtime.{name}]") == 1
    assert total(found, 0) == 0


def functions(sample: Sample) -> set[str]:
    return {frame.function for frame in sample.frames}


@pytest.mark.parametrize("version", versions("1.19", "1.22", NEWEST))
def test_threads_in_c(version: str) -> None:
    with running(version, "cgo") as target:
        target.ask(f"c {NUMBER}", "done")
        found = read(target.pid, threads.profile, THREADS)
        assert total(found) == threads_of(target.pid)
    assert held(found, "in C", "main.sleepInC") == NUMBER
    calls = Counter(label(e, "syscall") for e in found.samples if "main.sleepInC" in functions(e))
    assert set(calls) <= {"clock_nanosleep", "nanosleep"}


def test_threads_that_ended_are_not_there() -> None:
    with running() as target:
        target.ask("end 5", "done")
        target.ask(f"read {NUMBER}", "done")
        found = read(target.pid, threads.profile, THREADS)
        assert held(found, "syscall", "main.readPipe") == NUMBER
        assert held(found, "locked", "main.endThread") == 0
        assert abs(total(found) - threads_of(target.pid)) <= 1


@pytest.mark.parametrize("version", versions())
def test_threadcreate_equals_gos(version: str, tmp_path: Path) -> None:
    with running(version) as target:
        target.ask(f"read {NUMBER}", "done")
        target.ask(f"own {tmp_path}", "done")
        ours = read(target.pid, threads.profile, THREADCREATE)
        text = read(target.pid, threads.written, THREADCREATE, 1)
    theirs = pprof.decode((tmp_path / "threadcreate.pb.gz").read_bytes())
    assert theirs.kind == "threadcreate"
    assert ours.sample_types == theirs.sample_types

    def named(profile: Profile) -> Counter[tuple[tuple[str, int], ...]]:
        """Go 1.23 and later have locations without a function in place of an empty stack."""
        found = Counter[tuple[tuple[str, int], ...]]()
        for sample in profile.samples:
            stack = tuple((f.function, f.line) for f in sample.frames if f.function)
            found[stack] += sample.values[0]
        return found

    assert sum(named(theirs).values()) > NUMBER
    assert named(ours) == named(theirs)
    assert text == (tmp_path / "threadcreate.txt").read_bytes()


def test_new_threads_are_charged_to_those_that_hold_threads(tmp_path: Path) -> None:
    with running() as target:
        target.ask("read 2", "done")
        before = threads_of(target.pid)
        with recording(target.pid, tmp_path, "--profile", "threads,threadcreate") as recorder:
            target.ask("read 20", "done")
            after = threads_of(target.pid)
            recorder.interrupt()
            finished = recorder.finish()
    assert finished.code == ExitCode.OK, finished.stderr
    (file,) = tmp_path.glob("*.threads.pb.gz")
    found = pprof.decode(file.read_bytes())
    assert found.kind == "threads"
    assert held(found, "syscall", "main.readPipe") == 22
    assert total(found, 0) == after - before > 10
    assert held(found, "syscall", "main.readPipe", 0) > 0.8 * (after - before)
    assert any("new threads during the recording" in comment for comment in found.comments)


def test_the_text_has_states_and_stacks() -> None:
    with running() as target:
        target.ask(f"read {NUMBER}", "done")
        text = read(target.pid, threads.written, THREADS, 1).decode()
        assert read(target.pid, threads.count) == threads_of(target.pid)
    assert text.startswith("threads profile: total ")
    (block,) = (each for each in text.split("\n\n") if "main.readPipe" in each)
    assert f"\n{NUMBER} @ 0x" in f"\n{block}"
    assert '# labels: {"state":"syscall", "syscall":"read"}' in block
