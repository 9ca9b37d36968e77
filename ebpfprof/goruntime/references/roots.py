"""Where references begin: package variables, goroutines, finalizers, and the runtime itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.goroutines.frames import StackFrames
from ebpfprof.goruntime.goroutines.table import GoroutineTable
from ebpfprof.goruntime.records import record
from ebpfprof.goruntime.references.specials import specials
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.codeanalysis.globals import allp_address
from symbolizer.errors import SymbolizerError
from symbolizer.locks.variables import Symbols

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.references.slots import Slots, Words
    from symbolizer import ElfFile, GoBinary

_WORD_BYTES: Final = 8
# runtime/symtab.go, moduledata, Go 1.19 to 1.27: data, edata, bss, ebss.
_DATA_AT: Final = 208
_ADDRESS_END: Final = 1 << 63
_MAX_DATA_BYTES: Final = 1 << 30
_CHUNK_BYTES: Final = 8 << 20
_MAX_STACK_BYTES: Final = 1 << 30  # runtime.maxstacksize
_MAX_STACKS_BYTES: Final = 4 << 30
_KEEPING: Final = ("Finalizer", "Cleanup", "WeakHandle")
_CLEANUP: Final = np.dtype([("function", "<u8"), ("argument", "<u8")])
"""What a cleanup has behind its first pointer from Go 1.26 on (runtime/mcleanup.go, cleanupFn).

In earlier versions there is a number, and then the next special: no addresses of the heap.
"""
_OWN_NOTHING: Final = frozenset(
    f"runtime.{name}" for name in ("gcBgMarkWorker", "bgsweep", "bgscavenge", "forcegchelper")
)
"""Goroutines of the collector: their stacks have what they last marked or swept."""
_MAX_PROCESSORS: Final = 4096


class RootKind(StrEnum):
    """What keeps objects alive by itself, in the order in which objects are assigned to roots."""

    VARIABLE = "variable"
    GOROUTINE = "goroutine"
    FINALIZER = "finalizer"
    RUNTIME = "runtime"


@dataclass(frozen=True, slots=True)
class Root:
    """A root: a package variable, the goroutines with one function and state, or finalizers.

    `address` is the variable's, as linked; 0 of a plugin's, whose types are not read. `goroutines`
    are the ids.
    """

    kind: RootKind
    name: str
    address: int = 0
    goroutines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RootWords:
    """Words of roots that lead to slots: the root's index, the slot, and where the word is.

    `offsets` are those in the variable (bytes), `places` runtime addresses. `goroutines` has the
    address of the runtime.g whose stack has the word, 0 for other words.
    """

    roots: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    is_first: npt.NDArray[np.bool_]
    places: Words
    goroutines: Words


class RootReader:
    """Reads the roots of one target."""

    def __init__(self, go: GoTarget, slots: Slots) -> None:
        self._go, self._memory, self._slots = go, go.target.memory, slots
        self._bias = go.load_bias
        self.roots: list[Root] = []
        self._words: list[tuple[int, Words, Words, npt.NDArray[np.int64], Words]] = []
        self.goroutines: list[Goroutine] = []
        self.beyond = 0
        """How many goroutines there are beyond the limit of what is read."""
        self.unread_stacks = 0
        """How many goroutines moved at each attempt, or have too large a stack."""

    def read(self) -> RootWords:
        """All words of all roots. Raises TargetGone or UnreadableMemory."""
        self._variables(self._go.binary, self._bias)
        for plugin in self._go.plugins:
            self._variables(plugin.binary, plugin.load_bias)
        self._goroutines()
        self._finalizers()
        self.scheduler = self._scheduler()
        return self._joined()

    scheduler: dict[str, npt.NDArray[np.int64]]
    """The slots of all runtime.g, runtime.m and runtime.p, by the name of the type."""

    def _scheduler(self) -> dict[str, npt.NDArray[np.int64]]:
        layout = self._go.binary.layout
        goroutines = GoroutineTable(self._memory, self._go.binary, self._bias, "thread").read()
        threads, processors = [goroutines["thread"]], np.zeros(0, np.uint64)
        if address := allp_address(self._go.binary):
            start, count = np.frombuffer(
                self._memory.read(address + self._bias, 16), "<u8"
            ).tolist()
            if 0 < count <= _MAX_PROCESSORS:
                processors = np.frombuffer(self._memory.read(start, _WORD_BYTES * count), np.uint64)
                of_processor = record(layout, "p", (("thread", "m", "<u8"),))
                threads.append(self._memory.read_records(processors, of_processor)["thread"])
        return {
            "runtime.g": self._whole(goroutines.addresses),
            "runtime.m": self._whole(np.concatenate(threads)),
            "runtime.p": self._whole(processors),
        }

    def _whole(self, addresses: Words) -> npt.NDArray[np.int64]:
        """The slots that begin at these addresses, or behind a type."""
        slots, is_first = self._slots.find(addresses.astype(np.uint64))
        is_there = slots >= 0
        slots, is_first, addresses = slots[is_there], is_first[is_there], addresses[is_there]
        offset = addresses - self._slots.addresses(slots)
        is_whole = is_first | (offset == np.uint64(_WORD_BYTES))
        whole: npt.NDArray[np.int64] = np.unique(slots[is_whole]).astype(np.int64)
        return whole

    def _add(
        self,
        root: Root,
        words: Words,
        places: Words,
        offsets: npt.NDArray[np.int64],
        goroutines: Words | None = None,
    ) -> None:
        owners = np.zeros(len(words), np.uint64) if goroutines is None else goroutines
        self._words.append((len(self.roots), words, places, offsets, owners))
        self.roots.append(root)

    def _joined(self) -> RootWords:
        if not self._words:
            none = np.zeros(0, np.int64)
            words = none.astype(np.uint64)
            return RootWords(none, none, none, none.astype(np.bool_), words, words)
        roots = np.concatenate(
            [np.full(len(words), number, np.int64) for number, words, _, _, _ in self._words]
        )
        slots, is_first = self._slots.find(np.concatenate([row[1] for row in self._words]))
        places = np.concatenate([row[2] for row in self._words])
        offsets = np.concatenate([row[3] for row in self._words])
        owners = np.concatenate([row[4] for row in self._words])
        is_there = slots >= 0
        # What a stack had earlier may lead to slots that were freed since.
        on_stack = np.array([bool(root.goroutines) for root in self.roots], np.bool_)[roots]
        chosen = np.flatnonzero(is_there & on_stack)
        is_there[chosen] = self._slots.are_allocated(self._memory, slots[chosen])
        return RootWords(
            roots[is_there],
            slots[is_there],
            offsets[is_there],
            is_first[is_there],
            places[is_there],
            owners[is_there],
        )

    def _variables(self, binary: GoBinary, bias: int) -> None:
        """Those of the program or of a plugin, with the load bias of that."""
        module = binary.module_start + bias
        ends = np.frombuffer(self._memory.read(module + _DATA_AT, 4 * _WORD_BYTES), "<u8")
        data, end_of_data, bss, end_of_bss = ends.tolist()
        for start, end in ((data, end_of_data), (bss, end_of_bss)):
            size = min(max(0, end - start), _MAX_DATA_BYTES)
            words, places = [], []
            for done in range(0, size & -_WORD_BYTES, _CHUNK_BYTES):
                piece = self._memory.read(
                    start + done, min(_CHUNK_BYTES, (size & -_WORD_BYTES) - done)
                )
                all_words = np.frombuffer(piece, np.uint64)
                chosen = self._slots.may_point(all_words)
                words.append(all_words[chosen])
                places.append((chosen * _WORD_BYTES + start + done).astype(np.uint64))
            if words:
                self._named(binary.elf, bias, np.concatenate(words), np.concatenate(places))

    def _named(self, elf: ElfFile, bias: int, words: Words, places: Words) -> None:
        """Add words of a file's data, by the variables that have them."""
        symbols = Symbols(elf)
        is_program = elf is self._go.binary.elf
        first = 0
        while first < len(places):
            name, start, end = self._variable(elf, symbols, int(places[first]) - bias)
            limit = np.uint64(min(end + bias, _ADDRESS_END))
            last = max(first + 1, int(np.searchsorted(places, limit)))
            part = slice(first, last)
            kind = RootKind.RUNTIME if _is_of_runtime(name) else RootKind.VARIABLE
            offsets = places[part].astype(np.int64) - (start + bias)
            root = Root(kind, name, start if is_program else 0)
            self._add(root, words[part], places[part], offsets)
            first = last

    def _variable(self, elf: ElfFile, symbols: Symbols, address: int) -> tuple[str, int, int]:
        """The name of the variable that has an address as linked, and where it begins and ends."""
        try:
            with elf.allowance:
                symbol = symbols.variable_at(address)
        except SymbolizerError:
            symbol = None
        if symbol:
            return symbol.name, symbol.address, symbol.address + symbol.size
        section = next(
            (
                section
                for section in elf.sections.values()
                if section.vaddr and section.vaddr <= address < section.vaddr + section.size
            ),
            None,
        )
        name = f"{section.name}+{address - section.vaddr:#x}" if section else f"{address:#x}"
        return name, address, address + _WORD_BYTES

    def _goroutines(self) -> None:
        scanner = GoroutineScanner(self._go, has_labels=False)
        goroutines = scanner.scan()
        frames = StackFrames(self._go)
        self.unread_stacks, self.beyond = goroutines.moved, goroutines.beyond
        self.goroutines = goroutines.goroutines
        by_root: dict[tuple[str, str], list[Goroutine]] = {}
        for goroutine in goroutines.goroutines:
            name = self._function(frames, goroutine)
            if name in _OWN_NOTHING:
                continue
            by_root.setdefault((goroutine.state, name), []).append(goroutine)
        left = _MAX_STACKS_BYTES
        for (state, name), members in by_root.items():
            words, places, owners = [], [], []
            for goroutine in members:
                got = self._stack(goroutine, left)
                if got is None:
                    self.unread_stacks += 1
                    continue
                words.append(got[0])
                places.append(got[1])
                owners.append(np.full(len(got[0]), goroutine.address, np.uint64))
                left -= goroutine.words.hi - int(got[2])
            if words:
                root = Root(
                    RootKind.RUNTIME if _is_of_runtime(name) else RootKind.GOROUTINE,
                    f"goroutine {name} [{state}]",
                    goroutines=tuple(goroutine.goid for goroutine in members),
                )
                joined = np.concatenate(places)
                self._add(
                    root,
                    np.concatenate(words),
                    joined,
                    np.zeros(len(joined), np.int64),
                    np.concatenate(owners),
                )

    def _function(self, frames: StackFrames, goroutine: Goroutine) -> str:
        """The function that it began with; of the first one, main.main."""
        if goroutine.goid == 1:
            return "main.main"
        frame = self._go.binary.frames(frames.wrapped(goroutine.start_pc) - self._bias)
        return frame[-1].function if frame else "?"

    def _stack(self, goroutine: Goroutine, left: int) -> tuple[Words, Words, int] | None:
        """The words of a stack that may point to the heap; the whole one if it runs."""
        low, high = goroutine.words.sp, goroutine.words.hi
        if not low:
            bounds = record(self._go.binary.layout, "g", (("lo", "stack.lo", "<u8"),))
            row = self._memory.read_records(np.array([goroutine.address], np.uint64), bounds)
            low = int(row["lo"][0])
        if not low or not 0 < high - low <= min(_MAX_STACK_BYTES, left):
            return None
        low += -low % _WORD_BYTES
        try:
            words = np.frombuffer(self._memory.read(low, (high - low) & -_WORD_BYTES), np.uint64)
        except UnreadableMemory:
            return None
        chosen = self._slots.may_point(words)
        return words[chosen], (chosen * _WORD_BYTES + low).astype(np.uint64), low

    def _finalizers(self) -> None:
        """What finalizers and cleanups keep: themselves, and what a finalizer's object refers to.

        And the handles of weak pointers, which have the address of their object, but don't keep it.

        runtime/mgcmark.go, markrootSpans, Go 1.19 to 1.27.
        """
        kinds = self._go.binary.layout.special_kinds
        kept = specials(self._memory, self._go.binary.layout, self._slots)
        chosen = np.isin(kept.kinds, [kinds[name] for name in _KEEPING if name in kinds])
        words, places = [kept.pointers[chosen]], [kept.places[chosen]]
        if "Cleanup" in kinds:
            more = kept.places[kept.kinds == kinds["Cleanup"]] + np.uint64(_WORD_BYTES)
            rows = self._memory.read_records(more, _CLEANUP)
            for number, name in enumerate(_CLEANUP.names or ()):
                words.append(rows[name])
                places.append(more + np.uint64(number * _WORD_BYTES))
        root = Root(RootKind.FINALIZER, "finalizers and cleanups")
        joined = np.concatenate(words)
        self._add(root, joined, np.concatenate(places), np.zeros(len(joined), np.int64))
        has_finalizer = (kept.kinds == kinds["Finalizer"]) & (kept.slots >= 0)
        self.finalized = np.unique(kept.slots[has_finalizer])

    finalized: npt.NDArray[np.int64]
    """The slots of objects with a finalizer: what they refer to is kept, they are not."""


def _is_of_runtime(name: str) -> bool:
    return name.startswith(("runtime.", "internal/runtime/", "runtime/internal/"))
