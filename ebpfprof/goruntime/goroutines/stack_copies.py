"""Copies of goroutines' stacks that belong to their runtime.g: the rule against torn reads.

One system call reads the runtime.g, the stack where its stack pointer was in an earlier sample, and
the runtime.g again, one goroutine after the other. A stack belongs to its runtime.g if all of that
was the same before and after, and the stack was where we read it. Waking, parking or moving a
goroutine changes its runtime.g: runtime.casgstatus, for example, counts in g.trackingSeq how often
the goroutine stopped running. The order in which the runtime writes is in runtime/proc.go (gopark,
park_m, execute), asm_amd64.s (mcall, gogo) and stack.go (copystack), Go 1.19 to 1.27.

Less than a microsecond lies between the two reads of a runtime.g, so most stacks belong to them
even if goroutines wait for less than that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.fields import g_record, waits_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.stack_starts import StackStarts
    from ebpfprof.process.memory import Memory
    from symbolizer.go.runtime_layout import RuntimeLayout

    Column = npt.NDArray[np.uint64]
    Rows = npt.NDArray[np.int64]

WINDOW_BYTES: Final = 2048
"""Of a stack, from the stack pointer on: most stacks are smaller."""
WINDOW_WORDS: Final = WINDOW_BYTES // 8
AT_ONCE: Final = 341
"""How many goroutines one call reads: three pieces each, and UIO_MAXIOV is 1024."""
_FEW: Final = 1
_MUCH_FEWER: Final = 8  # times: then memory for many is given back


class StackPlaces(NamedTuple):
    """Goroutines, and where their stacks are expected: from `sps` to `his`.

    If a goroutine has moved on, `pcs` and `bps` are where its stack began: 0 if unknown.
    """

    addresses: Column
    sps: Column
    his: Column
    pcs: Column
    bps: Column

    def part(self, which: slice | Rows) -> StackPlaces:
        """Some of them."""
        return StackPlaces(*(column[which] for column in self))


class Copies(NamedTuple):
    """What one call read, a row for each goroutine of a plan.

    `g` are the records of runtime.g, all fields, and `waits` the numbers of what the goroutines did
    (fields.wait_of). `pcs`, `sps` and `bps` are where the stacks begin, 0 for a goroutine that
    runs: see StackStarts. A stack that `is_there` is where it was expected. It `is_exact` if it
    belongs to the runtime.g, by the rule above; `is_same` is the rule without the place.
    """

    g: npt.NDArray[Any]
    waits: Column
    pcs: Column
    sps: Column
    bps: Column
    is_same: npt.NDArray[np.bool_]
    is_there: npt.NDArray[np.bool_]
    is_exact: npt.NDArray[np.bool_]

    @property
    def is_settled(self) -> npt.NDArray[np.bool_]:
        """Which need no other attempt: exact ones, and those that have no stack in memory."""
        settled: npt.NDArray[np.bool_] = self.is_exact | (self.sps == 0)
        return settled

    def update(self, places: StackPlaces, numbers: Rows) -> None:
        """Have these numbers of the places be where the stacks are now."""
        now = (self.sps, self.g["hi"], self.pcs, self.bps)
        for column, there in zip(places[1:], now, strict=True):
            column[numbers] = there


class StackCopier:
    """Copies stacks of one target. One thread at a time may use it."""

    def __init__(
        self,
        memory: Memory,
        layout: RuntimeLayout,
        starts: StackStarts,
        *,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """Copy `window_bytes` of a stack at most, a multiple of eight."""
        self._memory, self._starts, self._window_bytes = memory, starts, window_bytes
        self._kind = g_record(layout)
        self._size = self._kind.itemsize
        self.forget()

    def _make_room(self, most: int) -> None:
        """Take memory for this number of goroutines: most programs have few that move."""
        size = self._size
        self._before = np.zeros((most, size // 8), np.uint64)
        self._after = np.zeros((most, size // 8), np.uint64)
        self.words = np.zeros((most, self._window_bytes // 8 + 1), np.uint64)
        """Of each goroutine of the plan, the stack from where it was expected on. The last is 0."""
        rows = np.arange(most, dtype=np.uint64)
        self._here = np.zeros((most, 3, 2), np.uint64)
        for piece, buffer in enumerate((self._before, self.words, self._after)):
            self._here[:, piece, 0] = buffer.ctypes.data + rows * np.uint64(buffer.strides[0])
        self._here[:, ::2, 1] = size
        self._there = self._here.copy()
        self._pieces = self._here.ctypes.data, self._there.ctypes.data

    def forget(self) -> None:
        """Give back the memory for many goroutines, until the next plan()."""
        self._make_room(_FEW)
        self.plan(StackPlaces(*[np.zeros(0, np.uint64)] * 5))

    def plan(self, places: StackPlaces) -> None:
        """Prepare the next read(), which then begins without delay; AT_ONCE places at most."""
        self.places, count = places, len(places.addresses)
        room = len(self._here)
        if count > room or room > _MUCH_FEWER * max(count, _FEW):
            self._make_room(min(AT_ONCE, max(_FEW, count * 3 // 2)))
        here, there = self._here[:count], self._there[:count]
        rooms = np.where(places.his > places.sps, places.his - places.sps, np.uint64(0))
        lengths = np.minimum(rooms, np.uint64(self._window_bytes)) & ~np.uint64(7)
        lengths[places.sps == 0] = 0
        there[:, ::2, 0] = places.addresses[:, None]
        there[:, 1, 0] = places.sps
        here[:, 1, 1] = there[:, 1, 1] = lengths
        self._lengths, self._total = lengths, int(lengths.sum()) + 2 * self._size * count

    def read(self) -> Copies:
        """Read the goroutines at the places of the plan; `words` has their stacks.

        Raises TargetGone.
        """
        places = self.places
        count = len(places.addresses)
        if count:
            self._read_pieces()
            self._memory.read(int(places.addresses[0]), 1)  # raises if the pid was reused
        before = self._before[:count]
        g = before.view(self._kind)[:, 0]
        is_same = (before == self._after[:count]).all(axis=1)
        pcs, sps, bps = self._starts.of(g)
        is_there = (sps == places.sps) & (sps != 0)
        is_exact = is_same & is_there & (g["hi"] == places.his)
        return Copies(g, waits_in(g), pcs, sps, bps, is_same, is_there, is_exact)

    def copy(self, row: int) -> memoryview:
        """The words of a stack of the last read(), from where it was expected on."""
        return self.words[row, : int(self._lengths[row]) // 8].data

    def are_same(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Whether the runtime.g of these rows of the last read() are still the same.

        Then what was read since belongs to them, too. Raises TargetGone.
        """
        kind = np.dtype((np.void, self._size))
        now = self._memory.read_records(self.places.addresses[rows], kind)
        before = np.ascontiguousarray(self._before[rows])
        same: npt.NDArray[np.bool_] = (now.view(np.uint64).reshape(before.shape) == before).all(
            axis=1
        )
        return same

    def read_until_settled(
        self,
        places: StackPlaces,
        use: Callable[[Rows, Copies], npt.NDArray[np.bool_]],
        pauses_s: Sequence[float],
    ) -> Rows:
        """Read the stacks at any number of places, again where goroutines move: see Copies.

        Before each attempt it sleeps for one of `pauses_s`. `use` is called with numbers of places
        and what was read there, and returns which of them need no other attempt. Returns the
        numbers of those that needed one to the end. Raises TargetGone.
        """
        waiting = np.arange(len(places.addresses))
        for pause_s in pauses_s:
            if not len(waiting):
                break
            if pause_s:
                time.sleep(pause_s)  # those that moved may stand still a moment later
            unsettled = []
            for first in range(0, len(waiting), AT_ONCE):
                numbers = waiting[first : first + AT_ONCE]
                self.plan(places.part(numbers))
                copies = self.read()
                copies.update(places, numbers)
                unsettled.append(numbers[~use(numbers, copies)])
            waiting = np.concatenate(unsettled)
        return waiting

    def _read_pieces(self) -> None:
        size, first, end = self._size, 0, len(self.places.addresses)
        done = self._read_from(0)
        if done == self._total:
            return
        lengths = self._lengths.tolist()
        while True:
            # The call ends at the first piece that it can't read, or only in part.
            while first < end and done >= 2 * size + lengths[first]:
                done -= 2 * size + lengths[first]
                first += 1
            if first == end:
                return
            self._before[first] = 0
            self._after[first] = 1  # differs, so it is not exact
            first += 1
            if first == end:
                return
            done = self._read_from(first)

    def _read_from(self, first: int) -> int:
        count, skipped = 3 * (len(self.places.addresses) - first), 48 * first
        here, there = (start + skipped for start in self._pieces)
        return self._memory.read_pieces(here, count, there, count)
