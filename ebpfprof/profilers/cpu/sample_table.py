"""CPU samples out of the kernel's table, added up for whoever wants them.

A program on many processors soon has more distinct stacks than a table has room for: where each of
them was interrupted makes another one. So the table is emptied whenever a quarter of it may be
full. Its rows come in turns, even and odd ones: once new ones are of the next turn, those of the
last one change no more, and can be taken out without that a sample is missed. So can the sets of
labels that they refer to: a program may give each request its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import numpy as np

from ebpfprof.profilers import labels
from ebpfprof.profilers.cpu.unwinder import Ending

if TYPE_CHECKING:
    from ebpfprof.kernel.program import BpfProgram
    from ebpfprof.profile.model import Label

_LEAST_ROWS: Final = 1 << 12
_MOST_ROWS: Final = 1 << 15  # some 1.6 KB each
_ROOM_S: Final = 4
# Of one target, for one who wants them: some 0.3 KB each, and 1 KB while a profile is written.
_MAX_STACKS = 1 << 17


@dataclass(frozen=True, slots=True)
class CpuStack:
    """One stack of one target. Addresses are return addresses, innermost first.

    Where code was interrupted, such as in the innermost frame, that is its address plus 1 (as Go
    has it). `labels` are the goroutine's.
    """

    kernel_pcs: tuple[int, ...]
    pcs: tuple[int, ...]
    ending: Ending
    labels: tuple[Label, ...] = ()


class SampleSums:
    """How many samples each stack of a target has since this was begun; see SampleTable."""

    def __init__(self, target: int, before: Counter[CpuStack]) -> None:
        """`before` is what lies in the kernel's table already."""
        self.target = target
        self.taken_out: Counter[CpuStack] = Counter()
        self.before = before


def rows_for(hz: int, processors: int) -> int:
    """How many rows the table must have if so many samples may come a second of each processor.

    It is looked at several times a second; the rest is for when we have to wait ourselves.
    """
    return min(_MOST_ROWS, max(_LEAST_ROWS, _ROOM_S * hz * processors))


class SampleTable:
    """The maps `samples`, `turns` and `filled` of bpf/cpu/cpu.bpf.c, and `label_sets`."""

    def __init__(self, program: BpfProgram, rows: int, *, has_labels: bool) -> None:
        """`rows` is the size of `samples`."""
        self._program = program
        self._rows = rows
        self._has_labels = has_labels
        self._sums = defaultdict[int, WeakSet[SampleSums]](WeakSet)  # by target
        self._is_odd = 0
        self._is_emptying = False
        self._filled_before = self._sets_before = 0
        self._known: dict[int, tuple[int, CpuStack]] = {}  # targets and stacks by key
        self._pcs: dict[int, int] = {}
        self._label_sets: dict[int, tuple[Label, ...]] = {}
        self.lost = 0
        """How many samples found no room in some sums."""

    def begin(self, target: int) -> SampleSums:
        """Add up the samples of a target from now on, for as long as the caller keeps the sums."""
        sums = SampleSums(target, self._in_table(target))
        self._sums[target].add(sums)
        return sums

    def read(self, sums: SampleSums, *, restart: bool = False) -> Counter[CpuStack]:
        """How many samples each stack has since the sums began; they restart if `restart`."""
        now = self._in_table(sums.target)
        found = sums.taken_out + now
        found.subtract(sums.before)
        if restart:
            sums.taken_out, sums.before = Counter(), now
        return +found

    def add(self, target: int, stack: CpuStack, labels: int, count: int) -> None:
        """Add samples that were unwound outside of the kernel; `labels` is a key of label_sets."""
        kernel_pcs, pcs = self._shared(stack.kernel_pcs), self._shared(stack.pcs)
        found = CpuStack(kernel_pcs, pcs, stack.ending, self._labels(labels))
        self._add(target, found, count)

    def look(self) -> None:
        """Empty the table if it, or that of label sets, may be full soon.

        To be called some times a second, each time later than an interrupt may last: that is how
        it is known that nobody adds to rows of the last turn any more.
        """
        if self._is_emptying:
            self._is_emptying = False
            self._empty(self._is_odd ^ 1)
        filled = self._program.maps["filled"].sum_at(0)["rows"]
        sets = self._program.maps["sets_made"].sum_at(0)["rows"] if self._has_labels else 0
        if (
            filled - self._filled_before >= self._rows // 4
            or sets - self._sets_before >= labels.MAX_LABEL_SETS // 4
        ):
            self._filled_before, self._sets_before = filled, sets
            self._is_odd ^= 1
            self._program.maps["turns"].set_struct(0, {"is_odd": self._is_odd})
            self._is_emptying = True

    def forget(self, target: int) -> None:
        """Forget all of a target that is sampled no more; its sums stay as they are."""
        for keys, rows in self._program.maps["samples"].batches():
            self._program.maps["samples"].delete(keys[rows["process"] == target])
        self._known = {key: each for key, each in self._known.items() if each[0] != target}
        self._sums.pop(target, None)

    def _empty(self, is_odd: int) -> None:
        """Take the rows of a turn out; know only the stacks that it or the next one has."""
        taken, seen = [], {}
        for key, target, stack, count in self._all():
            seen[key >> 1] = target, stack
            if key & 1 == is_odd:
                self._add(target, stack, count)
                taken.append(key)
        self._known = seen
        self._pcs = {pc: pc for _, stack in seen.values() for pc in stack.kernel_pcs + stack.pcs}
        key_type, _ = self._program.maps["samples"].types
        self._program.maps["samples"].delete(np.array(taken, key_type))
        if self._has_labels:
            # Samples that were not unwound to their end may refer to them: kept until next time.
            self._label_sets = self._read_label_sets()
            labels.delete_sets(self._program, lambda owners: owners & 1 == is_odd)

    def _add(self, target: int, stack: CpuStack, count: int) -> None:
        for sums in self._sums[target]:
            if stack in sums.taken_out or len(sums.taken_out) < _MAX_STACKS:
                sums.taken_out[stack] += count
            else:
                self.lost += count

    def _in_table(self, target: int) -> Counter[CpuStack]:
        found = Counter[CpuStack]()
        for _, of, stack, count in self._all():
            if of == target:
                found[stack] += count
        return found

    def _all(self) -> Iterator[tuple[int, int, CpuStack, int]]:
        """The rows that there are: key, target, stack, count."""
        for keys, rows in self._program.maps["samples"].batches():
            for key, count, row in zip(keys.tolist(), rows["count"].tolist(), rows, strict=True):
                known = self._known.get(key >> 1)
                if known is None:
                    stack = CpuStack(
                        self._shared(row["kernel_pcs"][: row["kernel_depth"]].tolist()),
                        self._shared(row["user"]["pcs"][: row["user"]["depth"]].tolist()),
                        Ending(int(row["ending"])),
                        self._labels(int(row["labels"])),
                    )
                    known = self._known[key >> 1] = int(row["process"]), stack
                yield (key, *known, count)

    def _shared(self, pcs: tuple[int, ...] | list[int]) -> tuple[int, ...]:
        """The same, with one object for each address: else each takes four times the memory."""
        return tuple(map(self._pcs.setdefault, pcs, pcs))

    def _labels(self, key: int) -> tuple[Label, ...]:
        if key and self._has_labels and key not in self._label_sets:
            self._label_sets |= self._read_label_sets()
        return self._label_sets.get(key, ())

    def _read_label_sets(self) -> dict[int, tuple[Label, ...]]:
        return labels.label_sets(*self._program.maps["label_sets"].rows())
