"""What verbs say first, in three lines, about services with one fault each and one without."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.targets_run import Target

LINES = 3
EVERY_WAIT = ("--max-overhead", "0")
First = Callable[..., str]


@contextmanager
def service(name: str, folder: Path) -> Iterator[First]:
    """Start a service; then `first(verb, argument ...)` is what a verb says of it first."""
    with Target.start(program(f"services/{name}")) as target:

        def first(name: str, *arguments: str, code: ExitCode = ExitCode.OK) -> str:
            output = verb(name, "--pid", str(target.pid), *arguments, folder=folder)
            assert output.code == code, output.stderr
            return "\n".join(output.stdout.splitlines()[:LINES])

        yield first
        target.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("services")


def report(folder: Path, kind: str) -> str:
    """The first lines of `report` of the newest profile of a kind."""
    newest = max(folder.glob(f"*.{kind}.pb.gz"), key=lambda path: path.stat().st_mtime_ns)
    output = verb("report", str(newest))
    assert output.code == ExitCode.OK, output.stderr
    return "\n".join(output.stdout.splitlines()[:LINES])


@pytest.mark.full
def test_a_hot_lock_is_named(folder: Path) -> None:
    with service("hotlock", folder) as first:
        exact = first("attach", "-d", "1", *EVERY_WAIT, "--profile", "block,mutex", "--by-lock")
        assert "waiting for locks is for one, main.priceCache.mu, held for" in exact
        assert "waiting: Mutex.Lock in main.(*priceCache).get (main.go:" in exact
        assert "main.(*priceCache).get" in report(folder, "mutex")
        # Most: how much depends on how many prices were too old meanwhile.
        estimate = first("attach", "-d", "2")
        named = r"([5-9]\d|100) % of waiting: Mutex.Lock in main.\(\*priceCache\).get"
        assert re.match(named, estimate)
        assert re.match(r"([5-9]\d|100) % of waiting: Mutex.Lock in main", report(folder, "block"))
        assert "Deadlock" not in first("dump")  # nobody may wait at that moment
        assert "can be profiled" in first("doctor", "--apart", "0.5s")


@pytest.mark.full
def test_a_trace_names_a_hot_lock_and_what_its_holder_waits_for(folder: Path) -> None:
    with service("hotlock", folder) as first:
        # Longer than no price is too old.
        traced = first("trace", "-d", "1.5", *EVERY_WAIT, "-o", "hotlock.html")
        holder = r"main\.priceCache\.mu \(sync\.Mutex\.Lock\), held by net/http\.\(\*conn\)\.serve"
        assert re.search(r"which waited for the network \(127\.0\.0\.1:\d+\)", traced)
        assert re.search(holder, traced)


@pytest.mark.full
def test_a_starved_pool_is_named(folder: Path) -> None:
    with service("pool", folder) as first:
        waits = "chan receive in main.(*connectionPool).acquire (main.go:"
        assert f"100 % of waiting: {waits}" in first("attach", "-d", "1", *EVERY_WAIT)
        assert f"100 % of waiting: {waits}" in report(folder, "block")
        assert re.search(r"^\d+ IO wait, 3\d chan receive", first("dump"), re.MULTILINE)


@pytest.mark.full
def test_a_deadlock_is_named(folder: Path) -> None:
    with service("deadlock", folder) as first:
        pid = first("doctor", code=ExitCode.DEADLOCK_FOUND).split()[1]
        attached = first("attach", "-d", "1")
        assert attached.startswith("No goroutine waited and was woken.")
        assert f"\n    ebpfprof doctor --pid {pid}" in attached
        assert re.search(r"^12 sync.Mutex.Lock", first("dump"), re.MULTILINE)


@pytest.mark.full
def test_leaks_are_named(folder: Path) -> None:
    with service("leak", folder) as first:
        assert re.search(r"^[\d,]+ chan send", first("dump"), re.MULTILINE)
        waits = "chan receive in main.firstResult (main.go:"
        assert waits in first("attach", "-d", "2", *EVERY_WAIT)
    with service("movingleak", folder) as first:
        waits = "select in main.(*session).keepFresh (main.go:"
        assert waits in first("attach", "-d", "3")
        assert re.search(r"^[\d,]+ select", first("dump"), re.MULTILINE)


@pytest.mark.full
def test_memory_that_grows_is_named(folder: Path) -> None:
    with service("growth", folder) as first:
        output = first("attach", "-d", "3", "--profile", "allocs", *EVERY_WAIT)
        assert "main.newSession" in output
        assert re.search(r"Objects +[\d.]+ MiB", first("memory"))


@pytest.mark.full
def test_a_healthy_service_has_no_finding(folder: Path) -> None:
    with service("healthy", folder) as first:
        assert "Deadlock" not in first("dump")
        assert first("doctor").splitlines()[0].endswith("can be profiled.")
        assert "main.(*reports)." in first("attach", "-d", "2", *EVERY_WAIT)
