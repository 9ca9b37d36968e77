"""Keeps what samples cost a target within --max-overhead: one of several is taken, by chance."""

from __future__ import annotations

from typing import Final

from ebpfprof.overhead.budget import samples_to_take

_LEAST_USED_NS: Final = 100_000_000  # by a target, before what its samples cost is looked at


class SampleBound:
    """Of each target, by number, of how many samples one is taken."""

    def __init__(self, max_share: float) -> None:
        """`max_share` is what may be taken of a target's CPU time, 0 to 1; 0: whatever it takes."""
        self._max_share = max_share
        self._costs: dict[int, tuple[float, int]] = {}  # ours and the target's CPU time, ns
        self._one_in: dict[int, int] = {}

    @property
    def is_set(self) -> bool:
        """Whether there is a bound."""
        return self._max_share > 0

    def one_in(self, index: int) -> int:
        """Of how many samples of a target one is taken."""
        return self._one_in.get(index, 1)

    def look(self, index: int, spent_ns: float, used_ns: int | None) -> bool:
        """Look at what samples took of a target so far, and what it used; whether that is too much.

        Then fewer are to be taken.
        """
        if used_ns is None:
            return False
        spent_before_ns, used_before_ns = self._costs.setdefault(index, (spent_ns, used_ns))
        if used_ns - used_before_ns < _LEAST_USED_NS:
            return False
        self._costs[index] = spent_ns, used_ns
        spent_ns, used_ns = spent_ns - spent_before_ns, used_ns - used_before_ns
        before = self.one_in(index)
        self._one_in[index] = samples_to_take(before, spent_ns, used_ns, self._max_share)
        return self._one_in[index] > before

    def forget(self, index: int) -> None:
        """Forget a target."""
        self._costs.pop(index, None)
        self._one_in.pop(index, None)
