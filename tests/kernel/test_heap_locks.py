"""Names of locks on the heap without DWARF: right ones, or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from ebpfprof.goruntime.heap.heap_locks import HeapLocks
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.process import Target as Process
from symbolizer.locks.names import Caller, LockNames
from tests.builds import GENERIC, builds, versions
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.targets_run import Target

BUILDS: Final = (
    *((minor, "stripped") for minor in GENERIC),
    *(("1.27", mode) for mode in ("pie", "cgo", "debug")),
    *(("1.22", mode) for mode in ("pie", "debug")),
)
# Names that need the types that the runtime keeps from Go 1.22 on; we find them only where the
# runtime is optimized.
WITH_TYPES: Final = "?"


@dataclass(frozen=True)
class Locked:
    """A lock that a function of the target locks; addresses are the process's. `name` or ""."""

    address: int
    pc: int
    kind: str
    name: str


@contextmanager
def running(minor: str, mode: str) -> Iterator[tuple[GoTarget, list[Locked]]]:
    with (
        Target.start(program("heaplocks", minor, mode)) as target,
        Process(target.pid) as process,
    ):
        go = inspect(process)
        words = [line.split() for line in target.output if line.startswith("lock ")]
        yield go, [Locked(int(w[1], 16), int(w[2], 16), w[3], w[4].strip("-")) for w in words]


def caller_of(go: GoTarget, locked: Locked) -> Caller:
    frame = go.binary.frames(locked.pc - 1 - go.load_bias)[0]
    return Caller(frame.function, frame.pc)


@pytest.mark.parametrize(("minor", "mode"), builds(*BUILDS))
def test_locks_have_their_own_names_or_none(minor: str, mode: str) -> None:
    has_types = int(minor.partition(".")[2]) >= 22 and mode != "debug"
    with running(minor, mode) as (go, locked):
        heap = HeapLocks(go)
        found = [heap.name(each.address, [caller_of(go, each)], each.kind) for each in locked]
        wrong = []
        for each, name in zip(locked, found, strict=True):
            wanted = each.name.rstrip(WITH_TYPES)
            if name != wanted and not (
                name is None and (not wanted or (each.name.endswith(WITH_TYPES) and not has_types))
            ):
                wrong.append((caller_of(go, each).function, each.name, name))
    assert wrong == []


@pytest.mark.parametrize("minor", versions(*GENERIC))
def test_names_are_those_that_dwarf_has(minor: str) -> None:
    with running(minor, "plain") as (go, locked):
        heap, dwarf = HeapLocks(go), LockNames(go.binary)
        compared = 0
        for each in locked:
            callers = [caller_of(go, each)]
            name = heap.name(each.address, callers, each.kind)
            by_dwarf = dwarf.field(callers, each.kind)
            if name and by_dwarf:
                assert name == by_dwarf
                compared += 1
    assert compared >= 3


def test_memory_that_ends_early_gives_no_name() -> None:
    with running("1.27", "stripped") as (go, locked):
        heap = HeapLocks(go)
        for address in (0, 1, 1 << 46, 1 << 47, (1 << 64) - 8, go.load_bias + go.binary.text_start):
            assert heap.name(address, [], "sync.Mutex") is None
        last = locked[0]
        assert heap.name(last.address, [caller_of(go, last)], last.kind)
        # A function of the runtime locks no lock of the program.
        (malloc,) = go.binary.functions_named("runtime.mallocgc")
        stranger = Caller(malloc.name, malloc.entry)
        assert heap.name(last.address, [stranger], "sync.Mutex") is None
