"""Reading the buckets of Go's memory profile while the program allocates and collects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.goruntime.heap.bucket_list import BucketList
from ebpfprof.goruntime.heap.heap_buckets import HeapBuckets, HeapCounts
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.heap.buckets import remarks
from ebpfprof.profilers.heap.heap_stacks import HeapStacks
from symbolizer import ElfFile, GoBinary
from symbolizer.codeanalysis.heap_globals import heap_globals
from symbolizer.x86.disasm import decode
from tests.builds import NEWEST, in_full, versions
from tests.differential.test_heap import EVERY_ALLOCATION, order, recorded, running
from tests.go_target import inspect
from tests.kernel.parked_program import poke
from tests.kernel.programs import changed, program
from tests.recorder import names_in, recording, run
from tests.targets_run import Target

# Functions of the target that allocate once in each round, from one stack.
ONCE_A_ROUND = ("main.inlined", "main.work.func1", "main.square.make")
CYCLES = 30


@contextmanager
def buckets_of(pid: int) -> Iterator[tuple[HeapBuckets, GoTarget]]:
    with Process(pid) as process:
        go = inspect(process)
        memory = process.memory
        found = heap_globals(go.binary)
        yield HeapBuckets(memory, go.binary.layout, found, go.load_bias), go
        go.binary.elf.close()


def objects(counts: HeapCounts, stacks: HeapStacks) -> dict[str, tuple[int, int]]:
    """How many objects each function allocated, and how many of them are in use."""
    stacks.look_up(counts.stacks)
    sums: dict[str, tuple[int, int]] = {}
    for stack, allocs, frees in zip(counts.stacks, counts.allocs, counts.frees, strict=True):
        leaf = next((each.frame.function for each in stacks.shown(stack) if each.frame), "")
        before = sums.get(leaf, (0, 0))
        sums[leaf] = before[0] + int(allocs), before[1] + int(allocs - frees)
    return sums


@pytest.mark.parametrize("version", versions())
def test_no_read_is_torn_while_collections_follow_each_other(version: str) -> None:
    """The program collects between rounds, and only then: so Go publishes whole rounds."""
    with running(version, rate=EVERY_ALLOCATION, GOGC="off") as target:
        order(target, "gc")
        order(target, "churn on")
        with buckets_of(target.pid) as (buckets, go):
            found: list[HeapCounts] = []
            while len({each.cycle for each in found}) < CYCLES:
                found.append(buckets.read())
            stacks = HeapStacks(go.binary, go.load_bias, go.mappings)
            shown = [objects(each, stacks) for each in found if each.first_cycle == each.cycle]
        order(target, "churn off")
    full = [each for each in shown if ONCE_A_ROUND[0] in each]
    assert len(full) > CYCLES / 2
    for each in full:
        rounds, _ = each[ONCE_A_ROUND[0]]
        assert rounds % 3 == 0
        assert {name: each[name] for name in ONCE_A_ROUND} == dict.fromkeys(
            ONCE_A_ROUND, (rounds, 0)
        )


def test_fresh_sums_have_what_go_does_not_show_yet(tmp_path: Path) -> None:
    with running(NEWEST, rate=EVERY_ALLOCATION, GOGC="off") as target:
        order(target, "make 30")
        order(target, "gc")
        order(target, "make 12")
        gos = recorded(target, tmp_path / "gos")
        fresh = recorded(target, tmp_path / "fresh", "--fresh-heap")
        order(target, "gc")
        after = recorded(target, tmp_path / "after")

    def rounds(profile: Profile) -> int:
        return sum(
            sample.values[0]
            for sample in profile.samples
            if sample.frames[0].function == ONCE_A_ROUND[0]
        )

    assert [rounds(each["allocs"]) for each in (gos, fresh, after)] == [30, 42, 42]
    assert any("allocations until now" in comment for comment in fresh["heap"].comments)


def test_a_hundred_thousand_buckets(tmp_path: Path) -> None:
    number = 100_000
    with running(NEWEST, rate=EVERY_ALLOCATION, GOGC="off") as target:
        order(target, f"buckets {number}")
        order(target, "gc")
        with buckets_of(target.pid) as (buckets, _):
            found = buckets.read()
            again = buckets.read()
    assert len(found.stacks) > number
    assert int(found.allocs.sum()) >= number
    assert (found.beyond, found.corrupt) == (False, 0)
    assert len(again.stacks) == len(found.stacks)


def test_buckets_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebpfprof.goruntime.heap.bucket_list.MAX_BUCKETS", 20)
    with running(NEWEST, rate=EVERY_ALLOCATION) as target:
        order(target, "make 3")
        order(target, "gc")
        with buckets_of(target.pid) as (buckets, _):
            found = buckets.read()
    assert len(found.stacks) == 20
    assert found.beyond


@pytest.mark.parametrize("profiles", ["heap,allocs", *in_full("all")])
def test_a_program_without_a_memory_profile_is_probed(profiles: str, tmp_path: Path) -> None:
    with Target.start(program("nopprof")) as target:
        finished = run(
            "--pid", str(target.pid), "--profile", profiles, "-d", "0.1", folder=tmp_path
        )
    assert finished.code == ExitCode.OK, finished.stderr
    found = {p.kind: p for p in (pprof.decode(f.read_bytes()) for f in tmp_path.iterdir())}
    for kind in ("heap", "allocs"):
        assert any("keeps no memory profile: probes" in comment for comment in found[kind].comments)
        assert found[kind].period == 1
    (rest,) = {s.frames[0].function for s in found["heap"].samples if not s.values[0]}
    assert rest == "[other objects in use]"


def without_gates(folder: Path) -> Path:
    """A program in which one place does not tell the object: the code there never runs."""
    original = program("nopprof")
    with ElfFile.open(original) as elf:
        binary = GoBinary.open(elf)
        (large,) = binary.functions_named("runtime.mallocgcLarge")
        (profile,) = binary.functions_named("runtime.profilealloc")
        code = decode(elf.read(large.entry, large.end - large.entry), large.entry)
        call = next(each for each in code if each.target == profile.entry)
        moves = [each for each in code if each.address < call.address and "rbx" in each.written]
        xor_rbx = b"\x48\x31\xdb".ljust(moves[-1].size, b"\x90")
        return changed(original, folder, (elf.vaddr_to_offset(moves[-1].address), xor_rbx))


@pytest.mark.full
def test_a_program_of_unknown_code_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    with Target.start(without_gates(tmp_path)) as target:
        finished = run("--pid", str(target.pid), "--profile", "heap", "-d", "0.1", folder=folder)
        assert finished.code == ExitCode.CORRUPT_BINARY, finished.stderr
        assert "does not show where its allocated object is" in finished.stderr
        finished = run("--pid", str(target.pid), "--profile", "all", "-d", "0.1", folder=folder)
    assert finished.code == ExitCode.OK, finished.stderr
    assert "keeps no memory profile: its MemProfileRate is 0." in finished.stderr
    assert {name.split(".")[-3] for name in names_in(folder)} >= {"block", "heap", "allocs"}


@pytest.mark.full
def test_a_program_that_ends_meanwhile_leaves_what_was_seen(tmp_path: Path) -> None:
    with (
        running(NEWEST, rate=EVERY_ALLOCATION, GOGC="off") as target,
        recording(target.pid, tmp_path, "--profile", "heap,threads") as recorder,
    ):
        order(target, "make 3")
        order(target, "gc")
        sleep(1.5)  # a sample is due after a second
        target.kill()
        finished = recorder.finish()
    assert finished.code == ExitCode.OK, finished.stderr
    (file,) = tmp_path.glob("*.heap.pb.gz")
    profile = pprof.decode(file.read_bytes())
    leaves = {sample.frames[0].function for sample in profile.samples}
    assert {*ONCE_A_ROUND} <= leaves
    assert any("ended early" in comment for comment in profile.comments)


def test_counts_that_never_settle_are_reported() -> None:
    with running(NEWEST, rate=EVERY_ALLOCATION) as target:
        order(target, "make 3")
        order(target, "gc")
        with buckets_of(target.pid) as (buckets, _):
            whole = buckets.read()
            poke(target.pid, buckets._lock, 1)  # it is locked from now on
            found = buckets.read()
        target.kill()
    assert not whole.is_torn
    assert found.is_torn
    assert found.allocs.tolist() == whole.allocs.tolist()
    assert any("they may be wrong" in remark for remark in remarks(found, fresh=False))


def test_the_list_is_read_once() -> None:
    """Later reads take what is new from the front."""
    with running(NEWEST, rate=EVERY_ALLOCATION) as target:
        order(target, "make 3")
        with Process(target.pid) as process:
            go = inspect(process)
            memory = process.memory
            found = heap_globals(go.binary)
            known = BucketList(memory, go.binary.layout, found.buckets + go.load_bias)
            known.update()
            before = list(known.stacks)
            order(target, "buckets 500")
            known.update()
            fresh = BucketList(memory, go.binary.layout, found.buckets + go.load_bias)
            fresh.update()
            go.binary.elf.close()
    assert len(known.stacks) >= len(before) + 500
    assert known.stacks[: len(before)] == before
    assert known.stacks == fresh.stacks
    assert known.records.tolist() == fresh.records.tolist()
