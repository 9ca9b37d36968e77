"""Goroutines that were parked before anybody looked, read from outside."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.errors import ExitCode, TargetGone
from ebpfprof.export import pprof
from ebpfprof.goruntime import goroutines
from ebpfprof.goruntime.goroutines import ParkedGoroutine, ParkedGoroutines, parked_goroutines
from ebpfprof.goruntime.parked import ParkedScanner
from ebpfprof.goruntime.process import GoTarget, inspect
from ebpfprof.process.memory import Memory, UnreadableMemory
from ebpfprof.process.process import Target as Process
from symbolizer.codeanalysis.globals import allgs_address
from tests.builds import BUILDS, VERSIONS
from tests.kernel.programs import program
from tests.recorder import names_in, recording
from tests.targets_run import Target

SHELL = Path("/bin/sh")

# Names of wait reasons by the words that Go's traceback has for them.
WAIT_REASONS = {
    "chan receive": "ChanReceive",
    "chan send": "ChanSend",
    "select": "Select",
    "semacquire": "Semacquire",
    "sync.Cond.Wait": "SyncCondWait",
    "sync.Mutex.Lock": "SyncMutexLock",
    "sync.RWMutex.Lock": "SyncRWMutexLock",
    "sync.RWMutex.RLock": "SyncRWMutexRLock",
    "sync.WaitGroup.Wait": "SyncWaitGroupWait",
}
LEVELS = {"deepReceive": 60, "wideReceive": 40, "deepLock": 100}
# What is kept of any stack, as in the BPF programs.
MAX_DEPTH = 136

BUSY = re.compile(
    r"((runtime|sync|internal/sync)\.\S+ )+(main\.startBusy\.func\S+ ){1,2}"
    r"((main\.busyLeft ){2,30}|(main\.busyRight ){2,30})"
    r"main\.busyLoop (main\.startBusy\.\S+ )?runtime\.goexit"
)


@dataclass(frozen=True)
class Running:
    """The target `parked`, with all its goroutines parked, and what it says of them."""

    target: Target
    go: GoTarget
    reports: dict[str, dict[str, Any]]
    known: dict[int, list[str]] = field(default_factory=dict)

    def names(self, goroutine: ParkedGoroutine) -> list[str]:
        """The functions of a stack, innermost first; all of them."""
        for pc in goroutine.return_pcs:
            if pc not in self.known:
                frames = self.go.binary.frames(pc - 1 - self.go.load_bias)
                self.known[pc] = [frame.function for frame in frames]
        return [name for pc in goroutine.return_pcs for name in self.known[pc]]

    def one(self, operation: str) -> ParkedGoroutine:
        """A goroutine in this operation."""
        goids = self.reports[operation]["goids"]
        return next(each for each in parked_goroutines(self.go).goroutines if each.goid in goids)


@contextmanager
def running(minor: str, mode: str, *arguments: str) -> Iterator[Running]:
    path = program("parked", minor, mode)
    with Target.start(path, *arguments, env={"GOGC": "off"}) as target, Process(target.pid) as own:
        yield Running(target, inspect(own), json.loads(target.output[0]))


BOTH = ("--profile", "block,mutex")

# By goroutine: the innermost function of package main, the reason, the semaphore.
Facts = dict[int, tuple[str, str, int]]


def expected(run: Running) -> Facts:
    return {
        goid: (name, WAIT_REASONS[report["state"]], report["sema"])
        for name, report in run.reports.items()
        if not name.startswith("silent")
        for goid in report["goids"]
    }


def facts(run: Running, parked: ParkedGoroutines) -> Facts:
    """What was found, less the goroutines of the runtime's own and those of -busy."""
    found: Facts = {}
    for each in parked.goroutines:
        ours = [name[5:] for name in run.names(each) if name.startswith("main.")]
        if ours and not ours[0].startswith("startBusy."):
            assert each.goid not in found
            found[each.goid] = (ours[0], each.wait_reason, each.sema)
    return found


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: "-".join(build))
def test_each_parked_goroutine_is_found_with_its_stack(build: tuple[str, str]) -> None:
    with running(*build) as run:
        parked = parked_goroutines(run.go)
        assert (parked.unreadable, parked.cut_short) == (0, 0)
        assert facts(run, parked) == expected(run)
        stacks = {each.goid: run.names(each) for each in parked.goroutines}
        for name, levels in LEVELS.items():
            for goid in run.reports[name]["goids"]:
                assert stacks[goid].count(f"main.{name}") == levels
        deepest = run.reports["deeperReceive"]["goids"]
        for each in parked.goroutines:
            if each.goid in deepest:
                assert len(each.return_pcs) == MAX_DEPTH
                assert stacks[each.goid][-1] == "main.deeperReceive"
            else:
                assert stacks[each.goid][-1] == "runtime.goexit"
        for goid in run.reports.get("blockInGo", {"goids": []})["goids"]:
            assert stacks[goid][-3:] == ["main.fromGo", "main.start.func1", "runtime.goexit"]


@pytest.mark.parametrize("minor", VERSIONS)
def test_a_scanner_finds_the_same_ones(minor: str) -> None:
    """And knows of the others that they wait."""
    with running(minor, "plain") as run, ParkedScanner(run.go, has_labels=False) as scanner:
        found = {each.goid: each for each in scanner.parked().values()}
        assert found == {each.goid: each for each in parked_goroutines(run.go).goroutines}
        waiting = {each.goid for each in scanner.waiting}
        everybody = {goid for report in run.reports.values() for goid in report["goids"]}
        assert everybody <= waiting
        assert len(everybody - set(found)) >= 4


@pytest.mark.parametrize("minor", VERSIONS)
def test_no_stack_is_wrong_while_others_wake_and_all_stacks_move(minor: str) -> None:
    with running(minor, "plain", "-busy=1000") as run:
        planned = expected(run)
        busy = set()
        for _ in range(40):
            parked = parked_goroutines(run.go)
            found = facts(run, parked)
            assert found.items() <= planned.items()
            assert len(planned) - len(found) <= parked.unreadable
            assert parked.cut_short == 0
            for each in parked.goroutines:
                names = " ".join(run.names(each))
                if "main.busy" in names:
                    assert BUSY.fullmatch(names)
                    busy.add(each.goid)
        assert len(busy) > 500


@pytest.mark.parametrize(("window_bytes", "least_reads"), [(1 << 14, 12), (1 << 20, 3)])
def test_a_goroutine_that_parks_elsewhere_meanwhile_is_read_again(
    monkeypatch: pytest.MonkeyPatch, window_bytes: int, least_reads: int
) -> None:
    """Whichever read of it comes before: its record, its stack at once, frames far away."""
    monkeypatch.setattr(goroutines, "_WINDOW_BYTES", window_bytes)
    with running(VERSIONS[-1], "plain") as run:
        (goid,) = run.reports["turnLeft"]["goids"]
        left, right = ("main.turnLeft", 12), ("main.turnRight", 13)
        turn_behind = 1
        while True:
            reads = looks(monkeypatch, run, goid, left, None)
            if turn_behind >= reads:
                break
            looks(monkeypatch, run, goid, right, turn_behind)
            left, right = right, left
            turn_behind += 1
        assert turn_behind >= least_reads


def looks(
    monkeypatch: pytest.MonkeyPatch,
    run: Running,
    goid: int,
    expected: tuple[str, int],
    turn_behind: int | None,
) -> int:
    """How often one goroutine is read until it is found, in so many levels of that function.

    It is made to park elsewhere behind the read `turn_behind`.
    """
    reads = 0
    address = run.one("turnLeft").address
    with Memory(run.go.target) as memory:
        low, high = word(memory, address), word(memory, address + 8)
    read = Memory.read

    def counted(memory: Memory, at: int, size: int) -> bytes:
        nonlocal reads
        data = read(memory, at, size)
        if at == address or low <= at < high:
            reads += 1
            if reads == turn_behind:
                run.target.ask("turn", "turned")
        return data

    with monkeypatch.context() as patch:
        patch.setattr(Memory, "read", counted)
        parked = parked_goroutines(run.go)
    assert (parked.unreadable, parked.cut_short) == (0, 0)
    (found,) = [each for each in parked.goroutines if each.goid == goid]
    turns = Counter(name for name in run.names(found) if name.startswith("main.turn"))
    assert turns == {expected[0]: expected[1], "main.turn": 1}
    return reads


@pytest.mark.parametrize(
    ("status", "is_parked"),
    [(0x1004, True), (10, True), (0x100A, True), (1, False), (2, False), (3, False), (6, False)],
)
def test_waiting_ones_are_parked_also_while_they_are_scanned(status: int, is_parked: bool) -> None:
    """Numbers of runtime/runtime2.go: 4 is _Gwaiting, 10 _Gleaked, 0x1000 _Gscan."""
    with running(VERSIONS[-1], "plain") as run:
        planned = expected(run)
        goroutine = run.one("send")
        at = goroutine.address + run.go.binary.layout.offset("g", "atomicstatus")
        poke(run.target.pid, at, status)
        parked = parked_goroutines(run.go)
        assert (parked.unreadable, parked.cut_short) == (0, 0)
        if not is_parked:
            del planned[goroutine.goid]
        assert facts(run, parked) == planned
        run.target.kill()


def test_a_goroutine_whose_record_makes_no_sense_is_counted() -> None:
    with running(VERSIONS[-1], "plain") as run:
        planned = expected(run)
        goroutine = run.one("receive")
        at = goroutine.address + run.go.binary.layout.offset("g", "sched.bp")
        poke(run.target.pid, at, 8)
        parked = parked_goroutines(run.go)
        assert parked.unreadable == 1
        del planned[goroutine.goid]
        assert facts(run, parked) == planned
        run.target.kill()


def test_a_goroutine_that_sleeps_in_its_outermost_function_is_no_riddle() -> None:
    with running(VERSIONS[-1], "plain") as run, Memory(run.go.target) as memory:
        layout = run.go.binary.layout
        goids = run.reports["silentSleep"]["goids"]
        for g in all_goroutines(run, memory):
            if word(memory, g + layout.offset("g", "goid")) in goids:
                poke(run.target.pid, word(memory, g + layout.offset("g", "sched.bp")), 0)
        parked = parked_goroutines(run.go)
        assert (parked.unreadable, parked.cut_short) == (0, 0)
        assert facts(run, parked) == expected(run)
        run.target.kill()


def all_goroutines(run: Running, memory: Memory) -> list[int]:
    """The addresses of all runtime.g."""
    allgs = allgs_address(run.go.binary) + run.go.load_bias
    return [word(memory, word(memory, allgs) + 8 * i) for i in range(word(memory, allgs + 8))]


def test_a_stack_that_leads_astray_is_cut_short() -> None:
    with running(VERSIONS[-1], "plain") as run:
        goroutine = run.one("deepReceive")
        with Memory(run.go.target) as memory:
            layout = run.go.binary.layout
            frame = word(memory, goroutine.address + layout.offset("g", "sched.bp"))
            for _ in range(10):
                frame = word(memory, frame)
        for wrong in (frame, 1 << 40, frame + 1, (1 << 64) - 8):
            poke(run.target.pid, frame, wrong)
            parked = parked_goroutines(run.go)
            assert (parked.unreadable, parked.cut_short) == (0, 1)
            assert facts(run, parked) == expected(run)
            (found,) = [each for each in parked.goroutines if each.goid == goroutine.goid]
            assert found.return_pcs == goroutine.return_pcs[:11]
        # While its stack is being moved, another look may tell.
        scanned = 0x1004
        poke(run.target.pid, goroutine.address + layout.offset("g", "atomicstatus"), scanned)
        parked = parked_goroutines(run.go)
        assert (parked.unreadable, parked.cut_short) == (1, 0)
        run.target.kill()


def test_a_list_that_makes_no_sense_is_refused() -> None:
    with running(VERSIONS[-1], "plain") as run:
        poke(run.target.pid, allgs_address(run.go.binary) + run.go.load_bias + 16, 0)
        with pytest.raises(UnreadableMemory, match=r"makes no sense: .* Record again"):
            parked_goroutines(run.go)
        run.target.kill()


def test_without_the_list_all_else_is_written(tmp_path: Path) -> None:
    with running(VERSIONS[-1], "plain") as run:
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
    assert "Record again; if that does not help, without --open" in finished.stderr
    assert "This is a bug" not in finished.stderr
    (path,) = tmp_path.glob("*.open.pb.gz")
    comments = pprof.decode(path.read_bytes()).comments
    assert any(each.startswith("open waits are missing: The list of ") for each in comments)


def test_a_list_that_is_being_changed_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that changes it may have lost its processor in the midst of it."""
    with running(VERSIONS[-1], "plain") as run:
        everything = expected(run)
        capacity_at = allgs_address(run.go.binary) + run.go.load_bias + 16
        with Memory(run.go.target) as memory:
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
    with running(VERSIONS[-1], "plain") as run, Memory(run.go.target) as memory:
        total = len(all_goroutines(run, memory))
        monkeypatch.setattr(goroutines, "_MAX_GOROUTINES", 10)
        parked = parked_goroutines(run.go)
        assert parked.unreadable == total - 10
        assert len(parked.goroutines) <= 10


def test_a_target_that_ended_is_gone() -> None:
    with running(VERSIONS[-1], "plain") as run, Memory(run.go.target) as memory:
        run.target.kill()
        with pytest.raises(TargetGone):
            memory.read(run.go.binary.text_start + run.go.load_bias, 8)
        with pytest.raises(TargetGone):
            parked_goroutines(run.go)


def test_the_memory_of_a_program_that_was_replaced_is_not_read() -> None:
    script = "echo ready; read line; exec cat"
    with (
        Target.start(SHELL, "-c", script, ready="ready") as target,
        Process(target.pid) as own,
        Memory(own) as memory,
    ):
        assert memory.read(code_of(target.pid), 8)
        target.say("go")
        target.ask("cat runs", "cat runs")
        with pytest.raises(TargetGone):
            memory.read(code_of(target.pid), 8)
        with pytest.raises(TargetGone):
            Memory(own)


def test_memory_that_is_not_mapped_is_refused() -> None:
    with Target.start(SHELL, "-c", "echo ready; read line", ready="ready") as target:
        with Process(target.pid) as own, Memory(own) as memory:
            hole = hole_of(target.pid)
            assert memory.read(hole - 8, 8)
            for address in (hole - 4, hole, 0, 1 << 47, (1 << 64) - 8, -8, 1 << 70):
                with pytest.raises(UnreadableMemory):
                    memory.read(address, 8)
        with pytest.raises(UnreadableMemory):
            memory.read(hole - 8, 8)
        target.say("end")


def test_memory_is_opened_for_reading_only() -> None:
    with Target.start(SHELL, "-c", "echo ready; read line", ready="ready") as target:
        with Process(target.pid) as own, Memory(own) as memory:
            flags = fcntl.fcntl(memory._fd, fcntl.F_GETFL)
            assert flags & os.O_ACCMODE == os.O_RDONLY
        target.say("end")


def code_of(pid: int) -> int:
    """Where the first executable mapping of a process begins."""
    lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return int(next(span for span, flags, *_ in lines if "x" in flags).split("-")[0], 16)


def hole_of(pid: int) -> int:
    """Where a mapping of a process ends and no other begins."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    spans = [[int(end, 16) for end in line.split()[0].split("-")] for line in lines]
    return next(end for (_, end), (start, _) in pairwise(spans) if start > end)


def word(memory: Memory, address: int) -> int:
    (value,) = struct.unpack("<Q", memory.read(address, 8))
    return int(value)


def poke(pid: int, address: int, value: int) -> None:
    """Write a word to a target of ours that is killed afterwards."""
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        os.pwrite(memory.fileno(), struct.pack("<Q", value), address)
