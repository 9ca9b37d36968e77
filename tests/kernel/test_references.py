"""What keeps objects alive, of programs with known graphs, by what a collection then frees."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path as FilePath
from time import monotonic
from unittest import mock

import jsonschema
import numpy as np
import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.references import graph
from ebpfprof.goruntime.references.reader import ReferenceReader
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.references import Path, References
from tests.builds import NEWEST, in_full, versions
from tests.images.readers import opened
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import TARGETS, program
from tests.kernel.test_memory_command import ROOT
from tests.targets_run import DEADLINE_S, Target
from tests.toolchains import toolchain

COMMAND = (sys.executable, "-m", "ebpfprof", "memory")
SCHEMA = json.loads((ROOT / "docs" / "references.schema.json").read_text())
VERSIONS = ("1.18", "1.19", "1.20", "1.22", "1.24", NEWEST)
CHUNK_BYTES = 7 << 20
"""At least, of an arena's chunk of 8 MiB."""
OF_RUNTIME = 20
"""Objects that the runtime and the harness allocate and drop between two commands."""


@dataclass(frozen=True)
class Way:
    """A way to keep objects alive: its root, what it keeps at least, and types on the way."""

    root: str
    least: int
    types: tuple[str, ...] = ()


WAYS = {
    "nodes": Way("main.nodes", 20000, ("*main.node",)),
    "queue": Way("main.queue", 7500, ("list.Element", "main.circle")),
    "sessions": Way("main.sessions", 20001, ("main.session", "[]uint8", "[]string")),
    "small": Way("main.small", 7, ("main.session",)),
    "callback": Way("main.callback", 16, ("func() int",)),
    "jobs": Way("main.jobs", 102, ("main.job",)),
    "drawn": Way("main.drawn", 1, ("main.shape",)),
    "raw": Way("main.raw", 2),
    "larges": Way("main.larges", 6020, ("main.large", "main.circle")),
    "hold": Way("goroutine main.hold [chan receive]", 1023),
}


@contextmanager
def running(version: str = NEWEST, mode: str = "plain") -> Iterator[Target]:
    with Target.start(program("references", version, mode)) as target:
        target.ask("gc", "done")
        yield target


@contextmanager
def reader(target: Target) -> Iterator[ReferenceReader]:
    with opened(Process(target.pid)) as go:
        yield ReferenceReader(go)


def root_of(references: References, name: str) -> Path:
    (root,) = (root.paths for root in references.roots if root.paths.label == name)
    return root


@pytest.mark.parametrize("version", versions(*VERSIONS))
def test_what_is_kept_is_freed_when_its_references_are_cut_and_nothing_else(version: str) -> None:
    """Addresses show little then: the runtime uses freed memory again."""
    with running(version) as target:
        with reader(target) as found:
            before = len(found.reached_addresses())
            references = found.references()
            freed = {name: found.freed_addresses(way.root) for name, way in WAYS.items()}
        for name, way in WAYS.items():
            assert len(freed[name]) >= way.least, name
            root = root_of(references, way.root)
            assert {*way.types} <= {path.type for path in root.all()}, name
            target.ask(f"cut {name}", "done")
        target.ask("gc", "done")
        with reader(target) as found:
            after = len(found.reached_addresses())
            for kind in ("main.node", "list.Element", "main.session", "main.job", "main.large"):
                assert len(found.of_type(kind)) == 0, kind
    different = np.unique(np.concatenate(list(freed.values())))
    assert abs(before - after - len(different)) <= OF_RUNTIME
    assert references.changed <= OF_RUNTIME
    assert references.left_out == references.stacks_missed == 0


@pytest.mark.parametrize("name", in_full(*WAYS))
def test_each_way_alone(name: str) -> None:
    with running() as target:
        with reader(target) as found:
            before = len(found.reached_addresses())
            freed = found.freed_addresses(WAYS[name].root)
        target.ask(f"cut {name}", "done")
        target.ask("gc", "done")
        with reader(target) as found:
            after = len(found.reached_addresses())
    assert abs(before - after - len(freed)) <= OF_RUNTIME


def test_timers_and_finalizers_keep_what_they_refer_to() -> None:
    with running() as target:
        with reader(target) as found:
            # The runtime has the timer, and the finalizer what its object refers to.
            assert len(found.freed_addresses("main.timer")) == 0
            kept = found.of_type("main.kept")
            assert len(kept) == 1
            assert found.reasons("main.kept", kept).freed_objects >= 1
            finalized = found.of_type("main.finalized")
            assert found.reasons("main.finalized", finalized).freed_objects == 1
        target.ask("cut timer", "done")
        target.ask("cut finalizable", "done")
        for _ in range(3):  # the finalizer runs in between
            target.ask("gc", "done")
        with reader(target) as found:
            assert len(found.of_type("main.finalized")) == len(found.of_type("main.kept")) == 0


@pytest.mark.parametrize("version", versions("1.24", "1.25", "1.26", NEWEST))
def test_weak_pointers_keep_nothing_and_cleanups_their_arguments(version: str) -> None:
    with running(version) as target:
        with reader(target) as found:
            kept = found.of_type("main.weakly")
            assert len(kept) == 1
            # Its number may be in a block with others. The object keeps the weak pointer's handle.
            freed = found.freed_addresses("main.strong")
            assert len(freed) <= 2
            assert set(found.scan.slots.addresses(kept).tolist()) <= set(freed.tolist())
            assert len(found.freed_addresses("main.weakTo")) == 0
            (argument,) = found.of_type("main.cleanupArgument")
            root, *_ = found.reasons("main.cleanupArgument", np.array([argument])).paths[0][0]
            assert root.startswith("finalizers and cleanups")
            assert 1 <= len(found.freed_addresses("main.cleanable")) <= 2
            before = len(found.reached_addresses())
        target.ask("cut strong", "done")
        target.ask("gc", "done")
        with reader(target) as found:
            assert len(found.of_type("main.weakly")) == 0
            assert len(found.of_type("main.cleaned")) == 1
            assert abs(before - len(freed) - len(found.reached_addresses())) <= OF_RUNTIME
        target.ask("cut cleanable", "done")
        for _ in range(3):  # the cleanup runs in between
            target.ask("gc", "done")
        with reader(target) as found:
            assert len(found.of_type("main.cleaned")) == 0
            assert len(found.of_type("main.cleanupArgument")) == 0
            # The argument's numbers are two in a block.
            assert before - len(found.reached_addresses()) >= 45 - OF_RUNTIME


@pytest.mark.parametrize("version", versions("1.22", "1.25", NEWEST))
def test_a_pool_keeps_its_objects_for_two_collections(version: str) -> None:
    """After one they are in its `victim`."""
    with running(version) as target:
        target.ask("pool", "done")
        for kept in (1, 1, 0):
            with reader(target) as found:
                pooled = found.of_type("main.pooled")
                assert len(pooled) == kept
                if kept:
                    freed = found.freed_addresses("main.pool")
                    assert set(found.scan.slots.addresses(pooled).tolist()) <= set(freed.tolist())
                    assert len(freed) >= 3  # the processors' parts, the object and its buffer
                before = len(found.reached_addresses())
            target.ask("gc once", "done")
        with reader(target) as found:
            assert abs(before - len(found.reached_addresses())) <= OF_RUNTIME


@pytest.fixture(scope="module")
def with_arenas(tmp_path_factory: pytest.TempPathFactory) -> FilePath:
    path = tmp_path_factory.mktemp("arenas") / "references"
    command = ("build", "-buildvcs=false", "-o", path, "./references")
    toolchain(NEWEST).go(*command, cwd=TARGETS, env={"GOEXPERIMENT": "arenas"})
    return path


@pytest.mark.full
def test_arenas_are_kept_as_a_whole(with_arenas: FilePath) -> None:
    """A chunk of 8 MiB is one object; what its objects refer to is kept by it.

    The arena has a finalizer, which frees it: only when that has run, or by Free, the chunks go.
    """
    with Target.start(with_arenas) as target:
        with reader(target) as found:
            before = len(found.reached_addresses())
            assert len(found.freed_addresses("main.region")) == 2
            region, parts = (root_of(found.references(), f"main.{n}") for n in ("region", "parts"))
        assert region.total > 2 * CHUNK_BYTES
        assert parts.total > CHUNK_BYTES
        # Of the three, the last one is half full. The numbers outside are two in a block.
        kept = region.total_objects + parts.total_objects
        assert kept >= 2.4 * CHUNK_BYTES / 1024 / 2
        target.ask("cut arena", "done")
        target.ask("gc", "done")
        with reader(target) as found:
            after = len(found.reached_addresses())
            large = found.scan.slots.bytes_of(found.scan.slots.find(found.reached_addresses())[0])
    # The runtime keeps the last chunk, to use the rest of it for another arena.
    assert (large > CHUNK_BYTES).sum() <= 1
    assert abs(before - after - kept) <= CHUNK_BYTES / 1024 / 2 + OF_RUNTIME


@pytest.mark.parametrize("mode", ["stripped", *in_full("pie", "debug", "cgo")])
def test_other_builds(mode: str) -> None:
    """A stripped program has no names of variables: sections and offsets instead."""
    with running(mode=mode) as target, reader(target) as found:
        references = found.references()
    paths = [path for root in references.roots for path in root.paths.all()]
    of_type = {
        kind: sum(p.objects for p in paths if p.type == kind)
        for kind in ("main.large", "main.circle", "main.node")
    }
    assert of_type["main.large"] == 20
    assert of_type["main.circle"] >= 4000
    assert of_type["main.node"] == (0 if mode == "stripped" else 20000) or mode != "stripped"
    assert any(root.paths.label.startswith(".bss+") for root in references.roots) == (
        mode == "stripped"
    )


def test_a_program_that_changes_meanwhile_is_read() -> None:
    """Objects whose references changed belong to no path, and are counted."""
    with Target.start(program("memory")) as target:
        target.ask("keep 3000", "done")
        target.ask("gc", "done")
        target.ask("churn", "done")
        with reader(target) as found:
            references = found.references()
    records = root_of(references, "main.records")
    assert sum(path.objects for path in records.all() if path.type == "main.record") == 3000
    assert references.changed_bytes < references.used


@pytest.mark.parametrize(
    "limit",
    [
        mock.patch.object(graph, "MAX_EDGES", 20_000),
        *in_full(mock.patch.object(graph, "MAX_SLOTS", 30_000)),
    ],
)
def test_why_refuses_what_is_beyond_a_limit(limit: AbstractContextManager[int]) -> None:
    with (
        running() as target,
        reader(target) as found,
        limit,
        pytest.raises(graph.HeapTooLarge) as refused,
    ):
        found.of_type("main.node")
    assert "--references shows" in str(refused.value)


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def shared() -> Iterator[Target]:
    with running() as target:
        yield target


def test_the_answer_comes_first(shared: Target) -> None:
    finished = ran(str(shared.pid), "--references")
    assert finished.returncode == ExitCode.OK, finished.stderr
    first, second, *_ = finished.stdout.splitlines()
    assert "are reachable in process" in first
    assert second.startswith("main.sessions (map[string]*main.session) keeps 5.55 MiB")
    assert "[]uint8 (4.88 MiB) below main.session.data" in second
    assert not has_probes(shared.pid)


def test_json_and_why(shared: Target) -> None:
    finished = ran(str(shared.pid), "--references", "--json")
    found = json.loads(finished.stdout)
    jsonschema.validate(found, SCHEMA)
    sessions = next(root for root in found["roots"] if root["label"] == "main.sessions")
    assert sessions["kind"] == "variable"
    assert sessions["total_objects"] >= 20001
    finished = ran("--pid", str(shared.pid), "--why", "main.session", "--json")
    why = json.loads(finished.stdout)
    jsonschema.validate(why, SCHEMA)
    assert why["objects"] >= 5000
    # Each has its data and tags; its name is also the map's key.
    assert why["freed_objects"] >= 14_900
    example = why["examples"][0]
    assert example["references"][0]["label"] == "main.sessions"
    finished = ran("--pid", str(shared.pid), "--why", hex(example["address"]))
    assert "1 reachable object" in finished.stdout
    assert "main.session" in finished.stdout


def test_what_is_asked_about_must_be_there(shared: Target) -> None:
    finished = ran("--pid", str(shared.pid), "--why", "main.sesion")
    assert finished.returncode == ExitCode.FAILURE
    assert "main.session" in finished.stderr


@pytest.mark.parametrize("ending", ["html", *in_full("pb.gz")])
def test_files(shared: Target, ending: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("references") / f"kept.{ending}"
    finished = ran("--pid", str(shared.pid), "--references", "-o", str(file))
    assert finished.returncode == ExitCode.OK, finished.stderr
    if ending == "html":
        assert b"main.sessions" in file.read_bytes()
        return
    report = subprocess.run(
        [sys.executable, "-m", "ebpfprof", "report", str(file)], capture_output=True, text=True
    )
    assert "[]uint8" in report.stdout, report.stderr


LEAKED = ("leakedSend", "leakedOuter", "leakedInner", "leakedSelect", "leakedNil")
LEAKED_BY_LOCKS = ("leakedGroup", "leakedLock")
STARTED = 3
HIDDEN = 2
CHANNEL_BYTES = 96
"""Each but one has a channel of its own; what the runtime has of goroutines is not counted."""


@pytest.mark.parametrize("version", versions(*VERSIONS))
def test_goroutines_that_can_never_continue(version: str) -> None:
    """From Go 1.26 on, runtime.g has the lock for which a goroutine waits."""
    with running(version) as target:
        target.ask("leak", "done")
        target.ask("gc", "done")
        with opened(Process(target.pid)) as go:
            found = ReferenceReader(go)
            leaked = found.leaked()
            names = {
                goroutine.goid: go.binary.frames(
                    go.binary.wrapped(goroutine.start_pc - go.load_bias)
                )[-1].function
                for goroutine in found.scan.heap.goroutines
            }
            target.ask("profile", "done")
            of_runtime = {
                goroutine.goid
                for goroutine in GoroutineScanner(go).scan().goroutines
                if goroutine.is_leaked
            }
    counts = Counter(names[goid].removeprefix("main.").partition(".")[0] for goid in leaked.ids)
    expected = LEAKED + (LEAKED_BY_LOCKS if version == NEWEST else ())
    # A word that stayed on a stack, which is used again, may hide one.
    assert counts.keys() == set(expected)
    assert sum(counts.values()) >= STARTED * len(expected) - HIDDEN
    assert leaked.used >= (STARTED - HIDDEN) * len(LEAKED) * CHANNEL_BYTES
    if version == NEWEST:
        assert {*leaked.ids} <= of_runtime
        assert len(of_runtime) == STARTED * len(expected)


def test_the_main_goroutine_that_waits_for_ever_is_no_leak() -> None:
    with Target.start(program("mainwaits")) as target, opened(Process(target.pid)) as go:
        leaks: tuple[int, ...] = ()
        until = monotonic() + DEADLINE_S
        while not leaks:  # the other one may not wait yet
            assert monotonic() < until
            leaks = tuple(ReferenceReader(go).leaked().ids)
        (leak,) = leaks
        states = {one.goid: one.state for one in GoroutineScanner(go).scan().goroutines}
    assert states[leak] == states[1] == "chan receive"
    assert leak != 1


@pytest.mark.full
def test_dump_shows_leaks() -> None:
    command = (sys.executable, "-m", "ebpfprof", "dump", "--apart", "0", "--json")
    with running() as target:
        target.ask("leak", "done")
        target.ask("gc", "done")
        known, found = (
            json.loads(
                subprocess.run(
                    [*command, *options, str(target.pid)], capture_output=True, text=True
                ).stdout
            )["goroutines"]
            for options in ((), ("--leaks",))
        )
    assert sum(goroutine["can_never_go_on"] for goroutine in known) == STARTED  # leakedNil
    leaked = [goroutine for goroutine in found if goroutine["can_never_go_on"]]
    assert len(leaked) >= STARTED * len(LEAKED + LEAKED_BY_LOCKS) - HIDDEN
    functions = {frame["function"] for goroutine in leaked for frame in goroutine["stack"]}
    assert "main.leakedSelect" in functions
    assert not {"main.fineGlobal", "main.fineTimer", "main.fineSleep"} & functions


@pytest.mark.full
def test_why_takes_a_function_that_allocates(shared: Target) -> None:
    """Go's memory profile samples every 512 KiB: about ten of the sessions' buffers."""
    finished = ran("--pid", str(shared.pid), "--why", "main.addSessions", "--json")
    assert finished.returncode == ExitCode.OK, finished.stderr
    why = json.loads(finished.stdout)
    assert 1 <= why["objects"] < 100
    assert {path["path"][0] for path in why["paths"]} == {
        "main.sessions (map[string]*main.session)"
    }


@pytest.mark.full
def test_watch_shows_the_path_that_grows() -> None:
    options = ("--references", "--watch", "--every", "0.2", "--json")
    with running() as target:
        watching = subprocess.Popen(
            [*COMMAND, *options, str(target.pid)], stdout=subprocess.PIPE, text=True
        )
        assert watching.stdout
        try:
            for line in watching.stdout:
                if growing := json.loads(line)["growing"]:
                    break
                target.ask("grow 300", "done")
                target.ask("gc", "done")
        finally:
            watching.kill()
            watching.wait()
            watching.stdout.close()
    assert growing[0]["what"].startswith("main.sessions (map[string]*main.session) > [] ")
    assert growing[0]["what"].endswith(".data ([]uint8)")
