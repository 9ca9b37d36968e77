"""Which processes are recorded in the next round, within a node's budget.

Pure: no clock, no process, no randomness. Costs are in processors: 0.01 is a hundredth of one.
Rounds have the same length, but for some that the caller tells of.

A round has an income, of which the processes that it records spend some. What is left over lets the
next round spend more, up to twice the income; what a round spends beyond that is a debt, and no
process is recorded until it is repaid. So over time the costs stay within the budget.

Processes are taken in turn from three queues while they fit: the one that waited longest, the
busiest, the newest that was never recorded, the busiest. The first is taken even if it costs more
than there is, but then it is alone in its round. So each process is recorded after as many rounds
as there are others before it, and as many as repay what those cost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

Key = tuple[int, int]
"""What identifies a process: its pid, and when it started."""

BUDGET: Final = "budget"
"""Why a process waits: its recording would cost more than is left."""
PLACES: Final = "places"
"""Why a process waits: as many are recorded as may be at once."""
_MOST_SAVED: Final = 2.0  # incomes
_ADVANCE: Final = 2.0  # incomes
_STEADY: Final = 1.25
"""How much busier a process must be to take the place of one that is recorded."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that could be recorded.

    `busy` is the CPU time that it uses, `cost` what recording it takes, both in processors. `age_s`
    is since when it runs.
    """

    key: Key
    busy: float
    age_s: float
    cost: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round records, in the order in which it was chosen, and why the others wait."""

    chosen: tuple[Key, ...]
    waiting: dict[Key, str]


@dataclass(slots=True)
class _Standing:
    """How often a process was passed over since it was recorded last, and whether it ever was."""

    passed_over: int = 0
    was_recorded: bool = False
    is_recorded: bool = False


@dataclass(slots=True)
class TurnScheduler:
    """Plans rounds."""

    saved: float | None = None
    """What earlier rounds left over; negative for a debt. None: the first round is still to come.

    It has an advance of two incomes: opening processes costs more than recording them."""
    left: float = 0.0
    """What the present round has not given to a process."""
    _standings: dict[Key, _Standing] = field(default_factory=dict)
    _places_left: int = 0

    def plan(
        self,
        candidates: Iterable[Candidate],
        *,
        income: float,
        places: int,
        spent: float = 0.0,
        lasted: float = 1.0,
        kept: Collection[Key] = (),
    ) -> Plan:
        """The processes of the next round: at most `places`, for at most what there is to spend.

        `spent` is what the last round really cost; it `lasted` so many times as long as usual.
        Those that are to be `kept` come first.
        """
        found = sorted(candidates, key=lambda each: each.key)
        standings = self._standings
        self._standings = {each.key: standings.get(each.key, _Standing()) for each in found}
        before = _ADVANCE * income if self.saved is None else self.saved
        self.saved = min(before + (income - spent) * lasted, _MOST_SAVED * income)
        self.left, self._places_left = self.saved, places
        chosen: dict[Key, Candidate] = {}
        if self.saved > _ROUNDING and places > 0:
            for each in found:
                if each.key in kept and self._fits(each, places - len(chosen)):
                    self._take(each, chosen)
            self._choose(found, chosen)
        for each in found:
            standing = self._standings[each.key]
            standing.is_recorded = each.key in chosen
            standing.was_recorded |= standing.is_recorded
            standing.passed_over = 0 if standing.is_recorded else standing.passed_over + 1
        self._places_left -= len(chosen)
        return Plan(
            tuple(chosen), {each.key: self._why(each) for each in found if each.key not in chosen}
        )

    def admit(self, newcomer: Candidate) -> str:
        """Take a process into the present round: "" if there is room for it, else why not."""
        standing = self._standings.setdefault(newcomer.key, _Standing())
        if why := "" if self._fits(newcomer, self._places_left) else self._why(newcomer):
            return why
        self.left -= newcomer.cost
        self._places_left -= 1
        standing.is_recorded = standing.was_recorded = True
        standing.passed_over = 0
        return ""

    def _choose(self, found: list[Candidate], chosen: dict[Key, Candidate]) -> None:
        standing = self._standings
        waited = sorted(found, key=lambda each: -standing[each.key].passed_over)
        for each in waited[: not chosen]:
            self._take(each, chosen)
        if self.left <= 0:
            return
        queues: tuple[list[Candidate], ...] = (
            self._by(found, lambda each: -each.busy * self._steadiness(each)),
            self._by(
                [each for each in found if not standing[each.key].was_recorded],
                lambda each: each.age_s,
            ),
            self._by(found, lambda each: -each.busy * self._steadiness(each)),
            waited,
        )
        queues = tuple(list(reversed(each)) for each in queues)
        while any(queues):
            for queue in queues:
                while queue:
                    each = queue.pop()
                    if each.key not in chosen and self._fits(each, self._places_left - len(chosen)):
                        self._take(each, chosen)
                        break

    def _by(self, found: list[Candidate], key: Callable[[Candidate], float]) -> list[Candidate]:
        return sorted(found, key=key)

    def _steadiness(self, each: Candidate) -> float:
        return _STEADY if self._standings[each.key].is_recorded else 1.0

    def _take(self, each: Candidate, chosen: dict[Key, Candidate]) -> None:
        chosen[each.key] = each
        self.left -= each.cost

    def _fits(self, each: Candidate, places: int) -> bool:
        return places > 0 and each.cost <= self.left + _ROUNDING and self.left > 0

    def _why(self, each: Candidate) -> str:
        return PLACES if self._places_left <= 0 and each.cost <= self.left else BUDGET
