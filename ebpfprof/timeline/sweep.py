"""Sums over chains of waits: one goes through all of the time and keeps who waits for whom.

At each moment a goroutine that waits depends on the one that will wake it; a wake comes before the
waker's own next wait ends, so there is no circle: the goroutines are trees, and at the root of each
is one that does something else than wait for a goroutine. What it does is what all others in its
tree wait for in the end. So each moment of a wait is charged once, and only while it lasts: who
wakes is not followed for what it does before or after (golang/go#57175).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ebpfprof.timeline.parts import GoroutinePart, Parts

NOTHING: Final = -1
"""The link of a goroutine of which nothing is known at the time."""
START: Final = 0
"""The state of a walk along a chain, before its first link."""
# A queue for a lock is a chain as long as the queue. All are followed until there was that much to
# do, and then the short ones.
LONG_CHAIN: Final = 4096
_SHORT_CHAIN: Final = 64
_MUCH: Final = 20_000_000
_END, _BEGIN, _CHOOSE = 0, 1, 2


class Chosen(NamedTuple):
    """A goroutine, and from when until when (CLOCK_MONOTONIC, ns)."""

    goid: int
    begin_ns: int
    end_ns: int


class ChainWalk(Protocol):
    """What is remembered of a chain: a state, a number, after each of its links."""

    def after(self, state: int, link: int) -> int:
        """The state behind one more link of a chain; the same each time."""


class Sweep:
    """The sums of one timeline. `links` has a number for each part, from 0 on, by goid.

    `not_created` gives that of a goroutine before it is there.
    """

    def __init__(
        self,
        parts: Parts,
        links: Mapping[int, Sequence[int]],
        not_created: Callable[[int], int],
    ) -> None:
        self._parts, self._links, self._not_created = parts, links, not_created

    def sums(self, chosen: Iterable[Chosen], walk: ChainWalk) -> Counter[tuple[int, int]]:
        """The ns for each state of a walk and the link that chains then ended with.

        Chains begin with the chosen goroutines, while they are chosen. The link is NOTHING where
        the last goroutine of the chain is not known to have done anything.
        """
        chosen = list(chosen)
        forest = _Forest(walk)
        for at_ns, kind, goid, number, waker in self._moves(chosen):
            if kind == _BEGIN:
                forest.begin(goid, number, waker, at_ns)
            elif kind == _END:
                forest.end(goid, at_ns)
            else:
                forest.choose(goid, number, at_ns)
        return forest.sums

    def _moves(self, chosen: Sequence[Chosen]) -> list[tuple[int, int, int, int, int]]:
        """Times, what happens, to which goroutine, with which number, and its waker."""
        since: dict[int, int] = {}
        for goid, begin_ns, _ in chosen:
            since[goid] = min(begin_ns, since.get(goid, begin_ns))
        moves = []
        for goid, part in self._parts.before(since).items():
            moves.append((part.begin_ns, _BEGIN, goid, self._not_created(goid), part.waker))
            moves.append((part.end_ns, _END, goid, 0, 0))
        for goid, of in self._parts.of.items():
            moves += self._of_goroutine(goid, of)
        for goid, begin_ns, end_ns in chosen:
            if begin_ns < end_ns:
                moves.append((begin_ns, _CHOOSE, goid, 1, 0))
                moves.append((end_ns, _CHOOSE, goid, -1, 0))
        moves.sort()
        return moves

    def _of_goroutine(
        self, goid: int, of: Sequence[GoroutinePart]
    ) -> Iterable[tuple[int, int, int, int, int]]:
        links = self._links[goid]
        for number, part in enumerate(of):
            yield part.begin_ns, _BEGIN, goid, links[number], part.waker
            is_last = number + 1 == len(of) or of[number + 1].begin_ns > part.end_ns
            if part.waker or is_last:
                yield part.end_ns, _END, goid, 0, 0


class _Forest:
    """Who waits for whom now, and of which states the chains are that lead to each goroutine."""

    def __init__(self, walk: ChainWalk) -> None:
        self.sums: Counter[tuple[int, int]] = Counter()
        self._walk = walk
        self._wakers: dict[int, int] = {}
        self._links: dict[int, int] = {}
        self._chains: dict[int, dict[int, int]] = defaultdict(dict)
        """By goid: how many chains are in which state before its own link."""
        self._since: dict[int, int] = {}
        """By goid, of those that wait for no goroutine: since when nothing changed."""
        self._work = 0

    def begin(self, goid: int, link: int, waker: int, at_ns: int) -> None:
        """It does something else from now on."""
        self._charge(goid, at_ns)
        self._links[goid] = link
        if waker and self._may_follow(waker, goid):
            self._wakers[goid] = waker
            self._add(waker, self._behind(goid), 1, at_ns)

    def end(self, goid: int, at_ns: int) -> None:
        """It waits for nobody any more, and nothing is known of it before it begins with more."""
        waker = self._wakers.pop(goid, 0)
        if waker:
            self._add(waker, self._behind(goid), -1, at_ns)
            self._since[goid] = at_ns
        else:
            self._charge(goid, at_ns)
        self._links[goid] = NOTHING

    def choose(self, goid: int, sign: int, at_ns: int) -> None:
        """A chain begins with it from now on, or no longer."""
        self._add(goid, {START: 1}, sign, at_ns)

    def _may_follow(self, waker: int, goid: int) -> bool:
        """Whether that makes no circle, which times that are not exact could, and no long chain."""
        most = LONG_CHAIN if self._work < _MUCH else _SHORT_CHAIN
        wakers, length = self._wakers, 0
        while waker != goid and length < most:
            if waker not in wakers:
                self._work += length
                return True
            waker, length = wakers[waker], length + 1
        return False

    def _behind(self, goid: int) -> dict[int, int]:
        """The chains that lead to it, as they are with its link."""
        return self._linked(self._chains[goid], self._links[goid])

    def _linked(self, chains: dict[int, int], link: int) -> dict[int, int]:
        if not chains:
            return chains
        counts: dict[int, int] = {}
        for state, count in chains.items():
            after = self._walk.after(state, link)
            counts[after] = counts.get(after, 0) + count
        return counts

    def _add(self, goid: int, chains: dict[int, int], sign: int, at_ns: int) -> None:
        """More chains, or fewer, lead to a goroutine, and so to all for which it waits."""
        while chains:
            waker = self._wakers.get(goid)
            if waker is None:
                self._charge(goid, at_ns)
            mine = self._chains[goid]
            for state, count in chains.items():
                if left := mine.get(state, 0) + sign * count:
                    mine[state] = left
                else:
                    del mine[state]
            if waker is None:
                return
            chains, goid = self._linked(chains, self._links[goid]), waker
            self._work += 1

    def _charge(self, goid: int, at_ns: int) -> None:
        """Charge what a goroutine that waits for none did until now to all that wait for it."""
        since_ns = self._since.get(goid, at_ns)
        self._since[goid] = at_ns
        chains = self._chains.get(goid)
        if chains and at_ns > since_ns:
            link, ns = self._links.get(goid, NOTHING), at_ns - since_ns
            for state, count in chains.items():
                self.sums[state, link] += count * ns
