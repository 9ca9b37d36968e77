"""All goroutines of a target as its own tracebacks would show them, without stopping it.

In pieces: the heads (runtime.g) of some goroutines, their stacks, then the heads again. A head that
is the same before and after belongs to the stack; we look again at goroutines that moved, as
all_goroutines does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.call_sites import RUNTIME, CallSites
from ebpfprof.goruntime.goroutines.labels import LEFT_OUT, LabelReader
from ebpfprof.goruntime.goroutines.reader import goroutine_list
from ebpfprof.goruntime.goroutines.stack_copies import StackStart, copies
from ebpfprof.goruntime.goroutines.stack_starts import head_of
from ebpfprof.goruntime.goroutines.table_walk import TableWalker
from ebpfprof.process.memory import Memory, UnreadableMemory
from ebpfprof.profile.tracebacks import PhysicalCall, TracedGoroutine
from ebpfprof.system.closing import Closing
from symbolizer.codeanalysis.globals import allgs_address
from symbolizer.go.arguments import Argument

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.table_walk import StackCopy
    from ebpfprof.process.process import Target
    from ebpfprof.profile.tracebacks import CallSite
    from symbolizer import GoBinary

# runtime/runtime2.go: _Gidle and so on; those from _Gleaked on came with Go 1.26.
_SCAN: Final = 0x1000
_RUNNING, _SYSCALL, _WAITING, _DEAD, _COPYSTACK, _LEAKED, _DEADEXTRA = 2, 3, 4, 6, 8, 10, 11
_WORDS: Final = {
    0: "idle",
    1: "runnable",
    _RUNNING: "running",
    _SYSCALL: "syscall",
    _WAITING: "waiting",
    _DEAD: "dead",
    _COPYSTACK: "copystack",
    9: "preempted",
    _LEAKED: "leaked",
}
_UNKNOWN_STATUS: Final = "???"
_UNKNOWN_REASON: Final = "unknown wait reason"
_NO_REASON: Final = "Zero"
_PAUSES_S: Final = (0, 0, 0.001, 0.003, 0.009)  # before each look at those that moved
_PIECE: Final = 512  # goroutines that we look at together
_MOST_FRAMES: Final = 1 << 22  # of all stacks together
_MOST_FRAMES_TOGETHER: Final = 1 << 20  # of those of a piece
_MOST_FRAMES_OF_ONE: Final = 1 << 17
_MOST_LABEL_BYTES: Final = 64 << 20  # of all goroutines, also where they share a set
_NO_ROOM: Final = ((LEFT_OUT.encode(), b"all"),)


class TracebackReader(Closing):
    """Reads the goroutines of a target, any number of times. Closes the target's memory."""

    def __init__(
        self, target: Target, binary: GoBinary, bias: int, *, has_arguments: bool, has_labels: bool
    ) -> None:
        """Open the memory of `target`, which runs `binary`, loaded `bias` bytes higher.

        Raises TargetGone, PermissionDenied or GoTableError (there is no list of goroutines).
        """
        self._pid = target.pid
        self._ahead_ns = target.clock_ahead_ns()
        self._allgs = allgs_address(binary) + bias
        self._layout = layout = binary.layout
        self._sites = CallSites(binary, bias, has_arguments=has_arguments)
        self._walker = TableWalker(binary, bias)
        self._memory = Memory(target)
        self._labels = LabelReader(self._memory, layout) if has_labels else None
        self._head = head_of(layout)
        self._names = frozenset(self._head.names or ())
        self._reasons = {number: name for name, number in layout.wait_reasons.items()}
        self._frames_left = 0
        self._label_bytes_left = 0
        self._known_labels: dict[int, tuple[tuple[bytes, bytes], ...] | None] = {}

    def count(self) -> int:
        """How many goroutines there are now, without the runtime's own (runtime.NumGoroutine).

        Raises TargetGone, UnreadableMemory or GoTableError.
        """
        heads = self._memory.read_records(self._addresses(), self._head)
        starts, counts = np.unique(heads["start_pc"][_are_there(heads)], return_counts=True)
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
        self._label_bytes_left = _MOST_LABEL_BYTES
        frames_left = _MOST_FRAMES
        addresses = self._addresses()
        for first in range(0, len(addresses), _PIECE):
            together = self._frames_left = min(frames_left, _MOST_FRAMES_TOGETHER)
            heads, stacks = self._look(addresses[first : first + _PIECE])
            frames_left -= together - self._frames_left
            read_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + (self._ahead_ns or 0)
            for head, stack, is_there in zip(heads, stacks, _are_there(heads), strict=True):
                if is_there and self._is_shown(head, stack):
                    yield self._traced(head, stack, read_ns)

    def close(self) -> None:
        """Close the target's memory."""
        self._memory.close()

    def _addresses(self) -> npt.NDArray[np.uint64]:
        found, _ = goroutine_list(self._memory, self._allgs, self._pid)
        return np.array(found, np.uint64)

    def _is_shown(self, head: np.void, stack: _Stack | None) -> bool:
        """Whether Go shows it: that of finalizers only while it runs one, so not in the runtime."""
        start_pc = int(head["start_pc"])
        if not self._sites.is_system(start_pc):
            return True
        if not self._sites.runs_finalizers(start_pc):
            return False
        if stack is None:  # while it runs, it hardly does anything else
            return int(head["status"]) & ~_SCAN == _RUNNING
        return any(not each.site.calls[-1].function.startswith(RUNTIME) for each in stack.frames)

    def _look(
        self, addresses: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[Any], list[_Stack | None]]:
        """The heads of goroutines, and their stacks; None for those that ran or moved each time."""
        heads = np.zeros(len(addresses), self._head)
        stacks: list[_Stack | None] = [None] * len(addresses)
        waiting = np.arange(len(addresses))
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)  # those that moved may stand still a moment later
            heads[waiting] = self._memory.read_records(addresses[waiting], self._head)
            starts = self._starts(heads, waiting)
            for copied in copies(self._memory, starts):
                numbers = np.array(list(copied), np.intp)
                is_same = (
                    self._memory.read_records(addresses[numbers], self._head) == heads[numbers]
                )
                self._read_stacks({at: copied[at] for at in numbers[is_same].tolist()}, stacks)
            is_done = [
                stacks[at] is not None or not is_there
                for at, is_there in zip(
                    waiting.tolist(), self._are_asked(heads[waiting]).tolist(), strict=True
                )
            ]
            waiting = waiting[~np.array(is_done, np.bool_)]
            if not len(waiting):
                break
        return heads, stacks

    def _are_asked(self, heads: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of these are goroutines that Go may show."""
        starts = heads["start_pc"].tolist()
        hidden = {
            start
            for start in set(starts)
            if self._sites.is_system(start) and not self._sites.runs_finalizers(start)
        }
        found: npt.NDArray[np.bool_] = _are_there(heads) & ~np.isin(starts, list(hidden))
        return found

    def _starts(
        self, heads: npt.NDArray[Any], numbers: npt.NDArray[np.intp]
    ) -> dict[int, StackStart]:
        """Where the stacks of these goroutines begin; not of those that run (unwinder.initAt)."""
        asked = heads[numbers]
        status = asked["status"] & ~np.uint32(_SCAN)
        has_stack = self._are_asked(asked) & ~np.isin(status, (_RUNNING, _COPYSTACK))
        in_syscall = asked["syscall_sp"] != 0
        pcs = np.where(in_syscall, asked["syscall_pc"], asked["pc"])
        sps = np.where(in_syscall, asked["syscall_sp"], asked["sp"])
        columns = (each.tolist() for each in (numbers, pcs, sps, asked["hi"], in_syscall))
        return {
            number: StackStart(pc, sp, hi, is_syscall)
            for has, (number, pc, sp, hi, is_syscall) in zip(
                has_stack.tolist(), zip(*columns, strict=True), strict=True
            )
            if has
        }

    def _read_stacks(self, copied: dict[int, StackCopy], stacks: list[_Stack | None]) -> None:
        """Walk copies of stacks, and put what they hold into `stacks`, by their numbers."""
        walks = {}
        for at, copy in copied.items():
            most = min(self._frames_left, _MOST_FRAMES_OF_ONE)
            walks[at] = self._walker.walk(copy, most=most)
            self._frames_left -= len(walks[at].pcs)
        self._sites.look_up({pc for walk in walks.values() for pc in walk.pcs})
        for at, walk in walks.items():
            sites = self._sites.of(walk.pcs)
            frames = tuple(
                PhysicalCall(site, _values(site, end, copied[at]) if site.arguments else ())
                for site, end in zip(sites, walk.ends, strict=True)
            )
            stacks[at] = _Stack(frames, walk.is_whole, walk.unknown_pc)

    def _traced(self, head: np.void, stack: _Stack | None, read_ns: int) -> TracedGoroutine:
        raw_status = int(head["status"])
        status = raw_status & ~_SCAN
        word = _WORDS.get(status, _UNKNOWN_STATUS)
        reason = self._reasons.get(int(head["reason"]), "")
        if status in (_WAITING, _LEAKED) and reason != _NO_REASON:
            texts = self._layout.wait_reason_texts
            word = texts[reason] if reason else _UNKNOWN_REASON
        since_ns = int(head["wait_since"])
        has_since = self._ahead_ns is not None and since_ns > 0 and status in (_WAITING, _SYSCALL)
        return TracedGoroutine(
            goid=int(head["goid"]),
            status=word,
            reason=reason,
            is_waiting=status == _WAITING,
            is_leaked=status == _LEAKED,
            is_scanned=bool(raw_status & _SCAN),
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
        found = self._known_labels[address]
        self._label_bytes_left -= sum(len(key) + len(value) for key, value in found or ())
        return found if self._label_bytes_left >= 0 else _NO_ROOM


class _Stack(NamedTuple):
    frames: tuple[PhysicalCall, ...]
    is_whole: bool
    unknown_pc: int


def _values(site: CallSite, end: int, copy: StackCopy) -> tuple[int | None, ...]:
    """The values of a frame's arguments, which begin at its end."""
    found: list[int | None] = []
    for argument in site.arguments:
        if isinstance(argument, Argument):
            at = end + argument.offset - copy.base
            data = copy.data[at : at + argument.size]
            is_there = len(data) == argument.size
            found.append(int.from_bytes(data, "little") if is_there else None)
    return tuple(found)


def _are_there(heads: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of these are goroutines; the others are dead, or not begun."""
    gone = np.isin(heads["status"] & ~np.uint32(_SCAN), (0, _DEAD, _DEADEXTRA))
    found: npt.NDArray[np.bool_] = ~gone & (heads["goid"] != 0)
    return found
