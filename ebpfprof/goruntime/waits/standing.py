"""Which goroutines stand still: the one judge of that, and how sure each user needs to be.

g.trackingSeq, which tells one wait of a goroutine from its next, has 8 bits. A goroutine that
continues between two samples has the same number in one of 256 pairs of samples, or in one of 20 if
it moves regularly, several times in each turn of its loop. So a goroutine counts as standing only
if enough samples, at random moments, saw it in one wait.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.fields import REASON_SHIFT
from ebpfprof.profile.hanging import HANGS_NS

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.states import CountedWaits

    Column = npt.NDArray[np.uint64]
    Times = npt.NDArray[np.int64]

_MOST_SAMPLES: Final = 16
_REASON_SHIFT: Final = np.uint64(REASON_SHIFT)


class Threshold(NamedTuple):
    """When a goroutine stands still: this number of samples saw it in one wait, the last of which
    began `ns` or more after the first had ended."""

    samples: int
    ns: int = 0


HANGING: Final = Threshold(5, HANGS_NS)
"""It hangs. Nobody waits for long for a lock or a send unless something is wrong; a recording or a
watch has samples enough within that time, and five wrong ones in a row are one in a billion."""
OPEN_WAIT: Final = Threshold(6, 100_000_000)
"""Its wait is worth a line among the waits in progress: goroutines wait for less all the time."""
LOCKED_OUT: Final = Threshold(6, 1_000_000_000)
"""A wait for a lock that lasts this long may be one for a goroutine that loops: what holders of
locks do is then not called idle."""
DUMPED: Final = Threshold(8)
"""A dump has half a second: it takes eight samples, which leaves regular movers no chance."""
DUMPED_SLOWLY: Final = Threshold(4)
"""The same where each sample takes long, so that a dump does not take many times its duration."""
CONFIRMED: Final = Threshold(7)
"""What a dump found is checked further: one sample of it, and six more (stuck_check)."""
TRIGGERING: Final = Threshold(5)
"""With the time that the user named, it ends a recording: no more samples than fit into that."""
LONG_FOR_A_LOOP: Final = Threshold(3)
"""It waits for longer than a few samples, as goroutines do that wait for a loop that rarely runs.
What is counted then is compared with chance, so some wrong ones do no harm."""


class Standing(NamedTuple):
    """Goroutines that stand still: their slots, the numbers of their waits (fields.wait_of), and
    when the first of the samples that saw each in its wait had ended (CLOCK_MONOTONIC)."""

    slots: npt.NDArray[np.int64]
    waits: Column
    since_ns: Times

    def by_wait(self) -> dict[int, int]:
        """The times by the numbers of the waits."""
        return dict(zip(self.waits.tolist(), self.since_ns.tolist(), strict=True))


class StandingJudge:
    """Judges the goroutines of one target by samples of its table of goroutines.

    A sample is a number for each slot of the table: what the goroutine there does (fields.wait_of,
    or any number that its next wait does not have), 0 for none.
    """

    def __init__(self, counted: CountedWaits | None = None) -> None:
        """Judge only waits that are `counted`; without it, all numbers but 0."""
        self._counted = counted
        self.waits: Column = np.zeros(0, np.uint64)
        """The last sample."""
        self._since_ns: Times = np.zeros(0, np.int64)
        self._ended_ns = deque[int](maxlen=_MOST_SAMPLES)
        self.began_ns = 0
        """When the last sample began."""

    @property
    def ended_ns(self) -> int:
        """When the last sample ended. Raises IndexError without one."""
        return self._ended_ns[-1]

    @property
    def samples(self) -> int:
        """The number of samples, as far as it matters."""
        return len(self._ended_ns)

    def moved(self, waits: Column) -> npt.NDArray[np.bool_]:
        """Which goroutines do something else in a sample than in the last one, by slot.

        The table only grows.
        """
        more = len(waits) - len(self.waits)
        if more > 0:
            self.waits = np.concatenate((self.waits, np.zeros(more, np.uint64)))
            self._since_ns = np.concatenate((self._since_ns, np.zeros(more, np.int64)))
        moved: npt.NDArray[np.bool_] = waits != self.waits
        return moved

    def add(self, waits: Column, began_ns: int, ended_ns: int) -> None:
        """Add a sample that was taken in that time (CLOCK_MONOTONIC).

        What it saw was so at some moment between its begin and its end.
        """
        moved = self.moved(waits)
        self._since_ns[moved] = ended_ns
        self.waits, self.began_ns = waits, began_ns
        self._ended_ns.append(ended_ns)

    def standing(self, threshold: Threshold) -> Standing:
        """The goroutines that stand still as of the last sample."""
        stands = (self.waits != 0) & (self._since_ns <= self._latest_ns(threshold))
        if self._counted:
            stands &= self._counted.of(self.waits, self.waits >> _REASON_SHIFT)
        slots = np.flatnonzero(stands)
        return Standing(slots, self.waits[slots], self._since_ns[slots])

    def seen(self) -> Standing:
        """All goroutines of the last sample that are in counted waits, whether they move or not."""
        is_seen = self.waits != 0
        if self._counted:
            is_seen &= self._counted.of(self.waits, self.waits >> _REASON_SHIFT)
        slots = np.flatnonzero(is_seen)
        return Standing(slots, self.waits[slots], self._since_ns[slots])

    def stands(self, slot: int, threshold: Threshold) -> bool:
        """Whether the goroutine at a slot does, whatever it does."""
        return int(self._since_ns[slot]) <= self._latest_ns(threshold)

    def _latest_ns(self, threshold: Threshold) -> int:
        """When a wait was seen at the latest that is as old as that."""
        if len(self._ended_ns) < threshold.samples:
            return -1
        return min(self.began_ns - threshold.ns, self._ended_ns[-threshold.samples])
