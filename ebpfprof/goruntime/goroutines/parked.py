"""The goroutines of a target that wait in an operation that Go's block profiler hooks.

Those that parked before the recording are among them. We read them from the target's memory while
it runs.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.fields import GOID_SHIFT, REASON_SHIFT, SEQUENCE_SHIFT
from ebpfprof.goruntime.goroutines.labels import LabelReader
from ebpfprof.goruntime.goroutines.stack_copies import StackPlaces
from ebpfprof.goruntime.goroutines.stack_reader import StackReader
from ebpfprof.goruntime.goroutines.states import PARKED, SCAN
from ebpfprof.goruntime.goroutines.table import GoroutineTable, Heads
from ebpfprof.goruntime.limits import MAX_DEPTH
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.profile.model import Label

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.stack_copies import Copies
    from ebpfprof.goruntime.goroutines.stack_reader import ReadStack

    Rows = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

_PARK: Final = "runtime.gopark"
_PARK_FRAMES: Final = 2  # before the operation, at most
PAUSES_S: Final = (0, *(0.001 * 2**attempt for attempt in range(8)))
# Frequent wait reasons of operations without a hook (runtime/netpoll.go, runtime/time.go).
_NEVER_HOOKED: Final = ("IOWait", "Sleep")
_BYTE: Final = np.uint64(0xFF)


class _Unsteady(Exception):  # noqa: N818 (reads better where it is raised)
    """What was read of a goroutine makes no sense: it may at another moment."""


@dataclass(frozen=True, slots=True)
class ParkedGoroutine:
    """A goroutine parked in an operation that Go's block profiler hooks.

    `address` is the address of its runtime.g. `wait_reason` is a name of
    RuntimeLayout.wait_reasons, "" if the number is unknown. `return_pcs` are runtime addresses,
    from the call of gopark outwards, as StackTranslator expects them of a wait. `sema` is the
    address of the semaphore that it waits for in runtime.semacquire1, 0 if it waits elsewhere.
    `sequence` is g.trackingSeq: each wait of a goroutine has its own (modulo 256). `labels` are
    the pprof labels of the goroutine, None if we could not read them.
    """

    address: int
    goid: int
    wait_reason: str
    return_pcs: tuple[int, ...]
    sema: int
    sequence: int = 0
    labels: tuple[Label, ...] | None = ()
    start_pc: int = 0
    """The runtime address of the function that it began with."""


@dataclass(slots=True)
class ParkedGoroutines:
    """All parked goroutines, and what is missing.

    `unreadable` counts the goroutines that changed at each attempt to read them, or made no sense.
    `cut_short` counts those of `goroutines` whose stack we could not unwind to its end.
    """

    goroutines: list[ParkedGoroutine]
    unreadable: int = 0
    cut_short: int = 0


class Wait(NamedTuple):
    """Identifies one wait of one goroutine: an equal Wait in a later scan is the same wait.

    `sequence` is g.trackingSeq, which counts how often the goroutine stopped running, modulo 256
    (runtime/proc.go, casgstatus, Go 1.17 on).
    """

    address: int
    goid: int
    sequence: int


def parked_goroutines(go: GoTarget, *, has_labels: bool = False) -> ParkedGoroutines:
    """Find the goroutines that wait at `go.sites.parks`.

    With `has_labels`, read their labels, too. Raises TargetGone, PermissionDenied,
    UnreadableMemory (there is no list of goroutines) or GoTableError.
    """
    scanner = ParkedScanner(go, has_labels=has_labels)
    heads, slots, _ = scanner.read_table()
    read, unsettled = scanner.read(heads, slots, PAUSES_S)
    goroutines = [(goroutine, is_whole) for _, goroutine, is_whole in read if goroutine]
    return ParkedGoroutines(
        [goroutine for goroutine, _ in goroutines],
        unsettled + heads.beyond,
        sum(not is_whole for _, is_whole in goroutines),
    )


def count_goroutines(go: GoTarget) -> int:
    """The number of runtime.g, including dead ones, which the runtime reuses.

    Raises TargetGone, PermissionDenied, UnreadableMemory or GoTableError.
    """
    memory = go.target.memory
    return GoroutineTable(memory, go.binary, go.load_bias).count()


def park_at(pcs: tuple[int, ...], returns: Container[int]) -> int | None:
    """Where in a stack the operation begins that parked; `returns` are those of hooked ones.

    As start_parked of bpf/probes/goroutine_stack.h: usually behind the frame of gopark, else behind
    that of goparkunlock. Where both were inlined there is no frame.
    """
    for at in (1, 0, _PARK_FRAMES):
        if at < len(pcs) and pcs[at] in returns:
            return at
    return None


class ParkedScanner:
    """Scans the goroutines of one target, any number of times: only changes are read again.

    A context manager that closes the target's memory.
    """

    def __init__(self, go: GoTarget, *, has_labels: bool) -> None:
        """With `has_labels`, read the labels of goroutines, too.

        Raises TargetGone, PermissionDenied or GoTableError.
        """
        self._memory = memory = go.target.memory
        layout = go.binary.layout
        self._table = GoroutineTable(memory, go.binary, go.load_bias, "sp", "hi")
        self._stacks = StackReader(go, memory, most=MAX_DEPTH + _PARK_FRAMES)
        self._labels = LabelReader(memory, layout) if has_labels else None
        self._binary, self._bias = go.binary, go.load_bias
        self._reasons = {number: name for name, number in layout.wait_reasons.items()}
        self._returns = frozenset(park.return_pc + go.load_bias for park in go.sites.parks)
        self._semacquires = frozenset(
            park.return_pc + go.load_bias
            for park in go.sites.parks
            if park.is_semaphore and go.sites.semaphores
        )
        self._park_pcs: dict[int, bool] = {}
        self._known_stacks: dict[tuple[int, ...], tuple[int, ...]] = {}
        reasons = layout.wait_reasons
        self._is_never_hooked = np.zeros(1 << 8, np.bool_)
        self._is_never_hooked[[reasons[name] for name in _NEVER_HOOKED if name in reasons]] = True
        self._read: dict[Wait, ParkedGoroutine | None] = {}
        self.waiting: frozenset[Wait] = frozenset()
        """The waits of the last scan, whatever their wait reasons."""

    def scan(self) -> frozenset[Wait]:
        """The waits of all goroutines now, whatever their wait reasons.

        Raises TargetGone or UnreadableMemory.
        """
        self.read_table()
        return self.waiting

    def parked(self) -> dict[Wait, ParkedGoroutine]:
        """The goroutines that are parked now in an operation that Go's block profiler hooks.

        Leaves out those that change meanwhile. Raises TargetGone or UnreadableMemory.
        """
        heads, slots, waits = self.read_table()
        known = self._read
        self._read = {wait: known[wait] for wait in waits if wait in known}
        new = np.array([wait not in known for wait in waits], np.bool_)
        read, _ = self.read(heads, slots[new], (0,))
        self._read.update((wait, goroutine) for wait, goroutine, _ in read)
        return {wait: goroutine for wait, goroutine in self._read.items() if goroutine}

    def read_table(self) -> tuple[Heads, Rows, list[Wait]]:
        """The table now; the slots of goroutines that may be in a hooked operation; their waits.

        Raises TargetGone or UnreadableMemory.
        """
        heads = self._table.read()
        is_parked = np.isin(heads.statuses, PARKED)
        is_elsewhere = self._is_never_hooked[heads.waits >> np.uint64(REASON_SHIFT) & _BYTE]
        slots = np.flatnonzero(is_parked & ~is_elsewhere)
        waits = _waits(heads, slots)
        elsewhere = _waits(heads, np.flatnonzero(is_parked & is_elsewhere))
        self.waiting = frozenset((*elsewhere, *waits))
        return heads, slots, waits

    def read(
        self, heads: Heads, slots: Rows, pauses_s: Sequence[float]
    ) -> tuple[list[tuple[Wait, ParkedGoroutine | None, bool]], int]:
        """The goroutines at these slots of the table that are parked.

        With each wait comes the goroutine, None if it is in no hooked operation, and whether its
        stack is whole. It reads again after `pauses_s` (stack_copies); then comes the number of
        goroutines that were unsteady at each attempt. Raises TargetGone.
        """
        outcomes: list[tuple[Wait, ParkedGoroutine | None, bool]] = []
        columns = (heads["sp"][slots], heads["hi"][slots])
        none = np.zeros(len(slots), np.uint64)
        places = StackPlaces(heads.addresses[slots], *columns, none, none.copy())

        def use(_: Rows, copies: Copies) -> Mask:
            return self._use(copies, outcomes)

        left = self._stacks.copier.read_until_settled(places, use, pauses_s)
        return outcomes, len(left)

    def _use(
        self, copies: Copies, outcomes: list[tuple[Wait, ParkedGoroutine | None, bool]]
    ) -> Mask:
        """Add what these copies are to `outcomes`; return which need no other attempt."""
        is_parked = np.isin(copies.waits & _BYTE, PARKED)
        is_settled: Mask = copies.is_exact | (~is_parked & (copies.g["goid"] != 0))
        rows = np.flatnonzero(copies.is_exact & is_parked)
        stacks = self._stacks.stacks(copies, rows, np.ones(len(rows), np.bool_))
        made: dict[int, tuple[ParkedGoroutine | None, bool]] = {}
        for row, stack in zip(rows.tolist(), stacks, strict=True):
            is_settled[row] = False
            if stack.is_exact:
                with suppress(_Unsteady):  # another attempt reads it again
                    made[row] = self._made(copies, row, stack)
        # Labels were read after the stack.
        rows = np.array(list(made), np.int64)
        is_same = self._stacks.copier.are_same(rows) if self._labels else rows >= 0
        for row, is_good in zip(rows.tolist(), is_same.tolist(), strict=True):
            if is_good:
                is_settled[row] = True
                address = int(self._stacks.copier.places.addresses[row])
                outcomes.append((_wait(address, int(copies.waits[row])), *made[row]))
        return is_settled

    def _made(
        self, copies: Copies, row: int, stack: ReadStack
    ) -> tuple[ParkedGoroutine | None, bool]:
        """The goroutine if it is parked in a hooked operation, and whether its stack is whole.

        Raises _Unsteady.
        """
        g, walk = copies.g[row], stack.walk
        if not self._is_in_gopark(int(g["pc"])):
            return None, True
        at = park_at(walk.pcs, self._returns)
        if not walk.is_whole and len(walk.pcs) <= (_PARK_FRAMES if at is None else 1):
            raise _Unsteady
        if at is None:
            return None, True
        is_whole = walk.is_whole or len(walk.pcs) - at >= MAX_DEPTH
        if not is_whole and int(g["status"]) & SCAN:
            raise _Unsteady  # the garbage collector is changing its frame pointers one by one
        sema = 0
        if walk.pcs[at] in self._semacquires:
            if stack.sema_at < 0:
                raise _Unsteady
            sema = int(self._stacks.copier.words[row, stack.sema_at])
        return_pcs = walk.pcs[at : at + MAX_DEPTH]
        return ParkedGoroutine(
            int(self._stacks.copier.places.addresses[row]),
            int(g["goid"]),
            self._reasons.get(int(g["reason"]), ""),
            self._known_stacks.setdefault(return_pcs, return_pcs),  # many have the same
            sema,
            int(g["sequence"]),
            self._labels.read_if_there(int(g["labels"])) if self._labels else (),
            int(g["start_pc"]),
        ), is_whole

    def _is_in_gopark(self, pc: int) -> bool:
        """Whether the saved pc is in gopark, inlined or not: other code saves its pc there, too."""
        known = self._park_pcs.get(pc)
        if known is None:
            frames = self._binary.frames(pc - 1 - self._bias)
            known = self._park_pcs[pc] = any(frame.function == _PARK for frame in frames)
        return known


def _wait(address: int, wait: int) -> Wait:
    return Wait(address, wait >> GOID_SHIFT, wait >> SEQUENCE_SHIFT & 0xFF)


def _waits(heads: Heads, slots: Rows) -> list[Wait]:
    waits = heads.waits[slots]
    return list(
        map(
            Wait,
            heads.addresses[slots].tolist(),
            (waits >> np.uint64(GOID_SHIFT)).tolist(),
            (waits >> np.uint64(SEQUENCE_SHIFT) & _BYTE).tolist(),
        )
    )
