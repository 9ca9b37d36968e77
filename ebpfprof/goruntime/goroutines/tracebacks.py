"""All goroutines of a target as its own tracebacks would show them, without stopping it.

Some goroutines at a time, with their whole stacks, and again those that moved (stack_copies).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.call_sites import RUNTIME, CallSites
from ebpfprof.goruntime.goroutines.fields import g_record
from ebpfprof.goruntime.goroutines.labels import LEFT_OUT, LabelReader
from ebpfprof.goruntime.goroutines.stack_copies import AT_ONCE, StackCopier, StackPlaces
from ebpfprof.goruntime.goroutines.stack_starts import StackStarts
from ebpfprof.goruntime.goroutines.states import (
    COPYSTACK,
    LEAKED,
    RUNNING,
    SCAN,
    STATUS_WORDS,
    SYSCALL,
    UNKNOWN_REASON,
    WAITING,
    are_there,
)
from ebpfprof.goruntime.goroutines.table import GoroutineTable, Heads
from ebpfprof.goruntime.goroutines.table_walk import StackCopy, TableWalker
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.tracebacks import PhysicalCall, TracedGoroutine
from symbolizer.go.arguments import Argument

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.stack_copies import Copies
    from ebpfprof.process.process import Target
    from ebpfprof.profile.tracebacks import CallSite
    from symbolizer import GoBinary

_UNKNOWN_STATUS: Final = "???"
_NO_REASON: Final = "Zero"
_PAUSES_S: Final = (0, 0, 0.001, 0.003, 0.009)  # before attempts
_LEAST_BYTES: Final = 256  # of stacks that are copied together
MOST_BYTES: Final = 16 << 20  # of one stack: the frames beyond are missing
_TOGETHER_BYTES: Final = 8 << 20  # but for a stack that is larger by itself
MOST_FRAMES: Final = 1 << 22  # of all stacks together
MOST_FRAMES_TOGETHER: Final = 1 << 20  # of those that are read together
MOST_FRAMES_OF_ONE: Final = 1 << 17
MOST_LABEL_BYTES: Final = 64 << 20  # of all goroutines, also where they share a set
_NO_ROOM: Final = ((LEFT_OUT.encode(), b"all"),)


class TracebackReader:
    """Reads the goroutines of a target, any number of times. Closes the target's memory."""

    def __init__(
        self, target: Target, binary: GoBinary, bias: int, *, has_arguments: bool, has_labels: bool
    ) -> None:
        """Open the memory of `target`, which runs `binary`, loaded `bias` bytes higher.

        Raises TargetGone, PermissionDenied or GoTableError (there is no list of goroutines).
        """
        self._ahead_ns = target.clock_ahead_ns()
        self._layout = layout = binary.layout
        self._sites = CallSites(binary, bias, has_arguments=has_arguments)
        self._walker = TableWalker(binary, bias)
        self._memory = target.memory
        self._table = GoroutineTable(self._memory, binary, bias, "sp", "hi", "start_pc")
        self._starts = StackStarts(binary, bias, as_tracebacks=True)
        self._labels = LabelReader(self._memory, layout) if has_labels else None
        self._record = g_record(layout)
        self._names = frozenset(self._record.names or ())
        self._reasons = {number: name for name, number in layout.wait_reasons.items()}
        self._frames_left = 0
        self._label_bytes_left = 0
        self._known_labels: dict[int, tuple[tuple[bytes, bytes], ...] | None] = {}

    def count(self) -> int:
        """How many goroutines there are now, without the runtime's own (runtime.NumGoroutine).

        Raises TargetGone, UnreadableMemory or GoTableError.
        """
        heads = self._table.read()
        starts, counts = np.unique(heads["start_pc"][heads.is_there], return_counts=True)
        return sum(
            count
            for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
            if not self._sites.is_system(start)
        )

    def read(self) -> Iterator[TracedGoroutine]:
        """The goroutines, without the runtime's own, in the order in which they were made.

        Raises TargetGone, UnreadableMemory or GoTableError.
        """
        self._known_labels.clear()
        self._label_bytes_left = MOST_LABEL_BYTES
        frames_left = MOST_FRAMES
        places = self._places(self._table.read())
        for first in range(0, len(places.addresses), AT_ONCE):
            together = self._frames_left = min(frames_left, MOST_FRAMES_TOGETHER)
            records, stacks = self._read(places.part(slice(first, first + AT_ONCE)))
            frames_left -= together - self._frames_left
            read_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + (self._ahead_ns or 0)
            for record, stack, is_there in zip(records, stacks, are_there(records), strict=True):
                if is_there and self._is_shown(record, stack):
                    yield self._traced(record, stack, read_ns)

    def _places(self, heads: Heads) -> StackPlaces:
        """Where the stacks of the goroutines are that Go may show."""
        hidden = [
            start
            for start in np.unique(heads["start_pc"]).tolist()
            if self._sites.is_system(start) and not self._sites.runs_finalizers(start)
        ]
        is_asked = heads.is_there & ~np.isin(heads["start_pc"], np.array(hidden, np.uint64))
        none = np.zeros(int(np.count_nonzero(is_asked)), np.uint64)
        addresses, sps, his = (
            column[is_asked] for column in (heads.addresses, heads["sp"], heads["hi"])
        )
        return StackPlaces(addresses, sps, his, none, none.copy())

    def _is_shown(self, head: np.void, stack: _Stack | None) -> bool:
        """Whether Go shows it: that of finalizers only while it runs one, so not in the runtime."""
        start_pc = int(head["start_pc"])
        if not self._sites.is_system(start_pc):
            return True
        if not self._sites.runs_finalizers(start_pc):
            return False
        if stack is None:  # while it runs, it hardly does anything else
            return int(head["status"]) & ~SCAN == RUNNING
        return any(not frame.site.calls[-1].function.startswith(RUNTIME) for frame in stack.frames)

    def _read(self, places: StackPlaces) -> tuple[npt.NDArray[Any], list[_Stack | None]]:
        """The runtime.g of goroutines, and their stacks; None if each attempt saw it run or move.

        There may be AT_ONCE places.
        """
        records = np.zeros(len(places.addresses), self._record)
        stacks: list[_Stack | None] = [None] * len(records)
        waiting = np.arange(len(records))
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)  # those that moved may stand still a moment later
            for size, numbers in _by_size(places, waiting):
                copier = StackCopier(self._memory, self._layout, self._starts, window_bytes=size)
                copier.plan(places.part(numbers))
                copies = copier.read()
                copies.update(places, numbers)
                records[numbers] = copies.g
                self._read_stacks(copier, copies, numbers, stacks)
            is_missing = np.array([stacks[number] is None for number in waiting.tolist()], np.bool_)
            waiting = waiting[is_missing & are_there(records[waiting])]
            if not len(waiting):
                break
        return records, stacks

    def _read_stacks(
        self,
        copier: StackCopier,
        copies: Copies,
        numbers: npt.NDArray[np.int64],
        stacks: list[_Stack | None],
    ) -> None:
        """Walk copies of stacks, and put what they hold into `stacks`, by their numbers."""
        statuses = copies.g["status"] & ~np.uint32(SCAN)
        rows = np.flatnonzero(copies.is_exact & (statuses != COPYSTACK))
        walked = []
        for row in rows.tolist():
            pc, sp, hi = (int(column[row]) for column in (copies.pcs, copies.sps, copies.g["hi"]))
            in_syscall = bool(copies.g["syscall_sp"][row])
            copy = StackCopy(pc, sp, hi, in_syscall, sp, copier.copy(row).tobytes())
            most = min(self._frames_left, MOST_FRAMES_OF_ONE)
            walk = self._walker.walk(copy, most=most)
            self._frames_left -= len(walk.pcs)
            walked.append((int(numbers[row]), copy, walk))
        self._sites.look_up({pc for _, _, walk in walked for pc in walk.pcs})
        for number, copy, walk in walked:
            sites = self._sites.of(walk.pcs)
            frames = tuple(
                PhysicalCall(site, _values(site, end, copy) if site.arguments else ())
                for site, end in zip(sites, walk.ends, strict=True)
            )
            stacks[number] = _Stack(frames, walk.is_whole, walk.unknown_pc)

    def _traced(self, head: np.void, stack: _Stack | None, read_ns: int) -> TracedGoroutine:
        raw_status = int(head["status"])
        status = raw_status & ~SCAN
        word = STATUS_WORDS.get(status, _UNKNOWN_STATUS)
        reason = self._reasons.get(int(head["reason"]), "")
        if status in (WAITING, LEAKED) and reason != _NO_REASON:
            texts = self._layout.wait_reason_texts
            word = texts[reason] if reason else UNKNOWN_REASON
        since_ns = int(head["wait_since"])
        has_since = self._ahead_ns is not None and since_ns > 0 and status in (WAITING, SYSCALL)
        return TracedGoroutine(
            goid=int(head["goid"]),
            status=word,
            reason=reason,
            is_waiting=status == WAITING,
            is_leaked=status == LEAKED,
            is_scanned=bool(raw_status & SCAN),
            waited_ns=max(0, read_ns - since_ns) if has_since else 0,
            is_locked=bool(head["locked"]),
            bubble=self._bubble(head),
            labels=self._labels_of(int(head["labels"])),
            frames=stack.frames if stack else (),
            has_stack=stack is not None,
            is_whole=stack is not None and stack.is_whole,
            unknown_pc=stack.unknown_pc if stack else 0,
            start=self._sites.at(int(head["start_pc"])),
            creator=self._sites.creator(int(head["created_pc"])),
            parent=int(head["parent"]) if "parent" in self._names else 0,
        )

    def _bubble(self, head: np.void) -> int | None:
        """The number of the synctest bubble: of Go 1.24's group, the goroutine that made it."""
        layout = self._layout
        try:
            if "bubble" in self._names and (bubble := int(head["bubble"])):
                return self._word(bubble + layout.offset("synctestBubble", "id"))
            if "group" in self._names and (group := int(head["group"])):
                root = self._word(group + layout.offset("synctestGroup", "root"))
                return self._word(root + layout.offset("g", "goid"))
        except UnreadableMemory:
            pass
        return None

    def _word(self, address: int) -> int:
        return int.from_bytes(self._memory.read(address, 8), "little")

    def _labels_of(self, address: int) -> tuple[tuple[bytes, bytes], ...] | None:
        """The labels of a set, which many goroutines may share; None without one."""
        if self._labels is None or not address:
            return None
        if self._label_bytes_left < 0:
            return _NO_ROOM
        if address not in self._known_labels:
            try:
                self._known_labels[address] = self._labels.pairs(address)
            except UnreadableMemory:
                self._known_labels[address] = None
        labels = self._known_labels[address]
        self._label_bytes_left -= sum(len(key) + len(value) for key, value in labels or ())
        return labels if self._label_bytes_left >= 0 else _NO_ROOM


class _Stack(NamedTuple):
    frames: tuple[PhysicalCall, ...]
    is_whole: bool
    unknown_pc: int


def _values(site: CallSite, end: int, copy: StackCopy) -> tuple[int | None, ...]:
    """The values of a frame's arguments, which begin at its end."""
    values: list[int | None] = []
    for argument in site.arguments:
        if isinstance(argument, Argument):
            at = end + argument.offset - copy.base
            data = copy.data[at : at + argument.size]
            is_there = len(data) == argument.size
            values.append(int.from_bytes(data, "little") if is_there else None)
    return tuple(values)


def _by_size(
    places: StackPlaces, numbers: npt.NDArray[np.int64]
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """These places by the size of their stacks, in bytes: as many as fit into some megabytes."""
    his, sps = places.his[numbers], places.sps[numbers]
    used = np.where(his > sps, his - sps, np.uint64(0))
    powers = np.ceil(np.log2(np.clip(used, _LEAST_BYTES, MOST_BYTES).astype(np.float64)))
    for power in np.unique(powers).tolist():
        size = 1 << int(power)
        group, together = numbers[powers == power], max(1, _TOGETHER_BYTES // size)
        for first in range(0, len(group), together):
            yield size, group[first : first + together]
