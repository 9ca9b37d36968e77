"""Samples of threads: by what they do, and by the stack of the goroutine that has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.goruntime.goroutines.threads import HELD, NOT_GOS, RUNNING
from ebpfprof.profile.model import Frame, Label, Location, Sample
from ebpfprof.profile.operations import STATE

if TYPE_CHECKING:
    from ebpfprof.goruntime.goroutines.threads import AllThreads, GoThread
    from ebpfprof.profilers.goroutines.goroutine_stacks import GoroutineStacks

Key = tuple[tuple[Location, ...], tuple[Label, ...]]
_CALL: Final = "syscall"
_NOBODY: Final = "no goroutine held a thread"
# Readers distinguish locations by their addresses; those of goroutines without a stack are 1 and 2.
_FIRST_ADDRESS: Final = 3


class ThreadStacks:
    """The stacks of threads of one target."""

    def __init__(self, stacks: GoroutineStacks) -> None:
        self._stacks = stacks
        self._pseudo: dict[str, Location] = {}

    def counted(self, threads: AllThreads) -> Counter[Key]:
        """How many threads have each stack and labels. Raises GoTableError."""
        goroutines = [thread.goroutine for thread in threads.threads if thread.goroutine]
        self._stacks.look_up(
            pc
            for goroutine in goroutines
            for pc in (*goroutine.pcs, goroutine.start_pc, goroutine.created_pc)
            if pc
        )
        counts = Counter(self._key(thread) for thread in threads.threads)
        if threads.others:
            counts[self._without_goroutine(NOT_GOS)] += threads.others
        return counts

    def charged(self, threads: AllThreads, new_threads: int) -> Counter[Key]:
        """New threads, charged in equal parts to those that held threads when they were seen.

        Raises GoTableError.
        """
        held = [thread for thread in threads.threads if thread.state in HELD]
        if not held:
            return Counter({self._without_goroutine(_NOBODY): new_threads})
        counts = self.counted(type(threads)(held, 0))
        return Counter(dict(zip(counts, shares(new_threads, list(counts.values())), strict=True)))

    def created(self, stacks: Iterable[tuple[int, ...]]) -> Counter[tuple[Location, ...]]:
        """How many threads have each stack of creation, () for none. Raises GoTableError."""
        counts = Counter(stacks)
        return Counter(
            {self._stacks.of("", pcs, 0) if pcs else (): count for pcs, count in counts.items()}
        )

    def _key(self, thread: GoThread) -> Key:
        goroutine = thread.goroutine
        if goroutine is None:
            return self._without_goroutine(thread.state, thread.function)
        labels = [Label(STATE, thread.state)]
        if thread.call:
            labels.append(Label(_CALL, thread.call))
        state = RUNNING if thread.state == RUNNING else goroutine.state
        stack = self._stacks.of(state, goroutine.pcs, goroutine.start_pc)
        return stack, tuple(labels)

    def _without_goroutine(self, state: str, function: str = "") -> Key:
        return (self._location(function or state),), (Label(STATE, state),)

    def _location(self, text: str) -> Location:
        if text not in self._pseudo:
            address = _FIRST_ADDRESS + len(self._pseudo)
            self._pseudo[text] = Location(address, None, (Frame(f"[{text}]", "", 0),))
        return self._pseudo[text]


def samples(now: Counter[Key], new: Counter[Key]) -> list[Sample]:
    """A sample for each stack and labels: new threads, and threads."""
    keys = dict.fromkeys((*now, *new))
    return [
        Sample(stack, (new[stack, labels], now[stack, labels]), labels) for stack, labels in keys
    ]


def shares(whole: int, parts: Sequence[int]) -> list[int]:
    """`whole` divided as `parts` are, in whole numbers whose sum it is."""
    total = sum(parts)
    ends = [round(whole * sum(parts[: at + 1]) / total) for at in range(len(parts))]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
