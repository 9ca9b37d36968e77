"""Goroutines are watched from outside: which hang, which wait in a circle, which leak."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

from ebpfprof.goruntime.waits import watch as watch_module
from ebpfprof.goruntime.waits.standing import HANGING
from ebpfprof.goruntime.waits.watch import GoroutineWatch, WatchedGoroutines
from ebpfprof.process.process import Target as Process
from ebpfprof.profile import hanging as hanging_module
from tests.builds import in_full, versions
from tests.go_target import inspect
from tests.kernel.oncall_program import oncall
from tests.kernel.parked_program import running
from tests.kernel.programs import program
from tests.targets_run import Target


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goroutines hang after a fiftieth of a second, and full samples may follow each other."""
    monkeypatch.setattr(hanging_module, "HANGS_NS", 20_000_000)
    monkeypatch.setattr(watch_module, "HANGING", HANGING._replace(ns=20_000_000))
    monkeypatch.setattr(watch_module, "SOON_S", 0.0)
    monkeypatch.setattr(watch_module, "FULL_SHARE", 1e9)


@contextmanager
def watching(pid: int) -> Iterator[GoroutineWatch]:
    with Process(pid) as process:
        go = inspect(process)
        watch = GoroutineWatch(go)
        yield watch
        go.binary.elf.close()


def sample(watch: GoroutineWatch, times: int = 1, *, full_every_s: float = 3600) -> None:
    for _ in range(times):
        watch.sample(interval_s=0, full_every_s=full_every_s)


def hung(goroutines: WatchedGoroutines) -> dict[str, int]:
    """How many goroutines hang in each operation."""
    return {each.operation: each.count for each in goroutines.hanging}


def until_hung(watch: GoroutineWatch, operation: str) -> WatchedGoroutines:
    for _ in range(10_000):
        sample(watch)
        if operation in hung(watch.found):
            return watch.found
    raise AssertionError(hung(watch.found))


@pytest.mark.parametrize("version", versions())
def test_goroutines_that_hang_are_found(version: str) -> None:
    with running(version, "plain") as run, watching(run.target.pid) as watch:
        sample(watch, 4)
        assert watch.found.hanging == ()  # four samples are not enough
        found = until_hung(watch, "chan send")
        run.target.kill()
    reports = run.reports
    assert hung(found)["chan send"] == len(reports["send"]["goids"])
    assert hung(found)["RWMutex.RLock"] == len(reports["readLock"]["goids"])
    assert "chan receive" not in hung(found)
    assert "select" not in hung(found)
    send = next(each for each in found.hanging if each.operation == "chan send")
    assert send.at_least_ns >= 20_000_000
    assert "main.send" in [frame.function for frame in send.first.frames]
    assert send.first.goid in reports["send"]["goids"]


def test_circles_of_lock_waits_are_found() -> None:
    with oncall() as run, watching(run.target.pid) as watch:
        sample(watch)
        facts = run.ask("deadlock")
        ids = {name: each["id"] for name, each in facts.items()}
        expected = {
            frozenset({ids["transferOne"], ids["transferOther"]}),
            frozenset({ids["total"]}),
            frozenset({ids["readTwice"], ids["writeBetween"]}),
        }
        found = set[frozenset[int]]()
        for _ in range(10_000):
            sample(watch)
            found = {
                frozenset(goroutine.goid for goroutine in one.goroutines)
                for one in watch.found.stuck
            }
            if found == expected:
                break
        assert found == expected


def test_of_too_many_goroutines_some_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "MOST_READ", 7)
    with oncall() as run, watching(run.target.pid) as watch:
        sample(watch)
        assert 0 < watch.found.goroutines <= 7
        assert watch.found.beyond > 10


def test_leaks_are_found() -> None:
    with oncall() as run, watching(run.target.pid) as watch:
        sample(watch, full_every_s=0)
        for _ in range(3):
            run.target.ask("leak 3", "leaked")
            sample(watch, full_every_s=0)
        ((leak, count),) = [each for each in watch.found.leaks if each[0].only_grows]
        assert count == 9
        assert leak.per_minute > 0
        assert "main.leaky" in [frame.function for frame in leak.group.first.frames]
        assert watch.found.samples > 3


def test_what_went_on_hangs_no_longer() -> None:
    with oncall() as run, watching(run.target.pid) as watch:
        run.target.ask("send 3", "sent")
        found = until_hung(watch, "chan send")
        assert hung(found)["chan send"] == 3
        run.target.ask("receive 2", "received")
        sample(watch)
        assert hung(watch.found)["chan send"] == 1
        run.target.ask("receive 1", "received")
        sample(watch)
        assert "chan send" not in hung(watch.found)


@pytest.mark.parametrize("work", ["mutex", *in_full("rwmutex", "pingpong", "pool")])
def test_goroutines_under_contention_do_not_hang(
    work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hanging_module, "HANGS_NS", 1_000_000_000)
    monkeypatch.setattr(watch_module, "HANGING", HANGING._replace(ns=1_000_000_000))
    with Target.start(program("workloads")) as target, watching(target.pid) as watch:
        target.say(f"go {work} 100000000 goroutines=8 procs=2")
        end_s = monotonic() + 2.5
        times = 0
        while monotonic() < end_s or times < 20:
            sample(watch)
            times += 1
            assert watch.found.hanging == ()
            assert watch.found.stuck == ()
        assert watch.found.goroutines > 1
        target.kill()
