"""Selects the processes that are recorded in the next round, within a node's budget.

Pure: no clock, no process, no randomness. Costs are in processors: 0.01 is a hundredth of one.
Rounds have the same length, except where the caller passes another one.

A round has an income, which the recorded processes spend. The rest lets the next round spend more,
up to twice the income. If a round spends more than there is, that is a debt: no process is recorded
until income has repaid it. So over time the costs stay within the budget.

Processes are taken in turn from four queues while they fit: the longest waiting, the busiest, the
newest that was never recorded, the busiest. The first one is taken even if it costs more than there
is, but then alone. So every process is recorded at some time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

Key = tuple[int, int]
"""Identifies a process: its pid and its start time."""

BUDGET: Final = "budget"
"""Why a process waits: its recording would exceed the budget."""
PLACES: Final = "places"
"""Why a process waits: the maximum number of processes is recorded."""
_MOST_SAVED: Final = 2.0  # incomes
_ADVANCE: Final = 2.0  # incomes
_STEADY: Final = 1.25
"""How much busier a process must be than a recorded one to replace it."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that could be recorded.

    `busy` is the CPU time that it uses, `cost` the cost of recording it, both in processors.
    `age_s` is how long it has run.
    """

    key: Key
    busy: float
    age_s: float
    cost: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The processes of a round, in the order of selection, and why the others wait."""

    chosen: tuple[Key, ...]
    waiting: dict[Key, str]


@dataclass(slots=True)
class _Standing:
    """How many rounds omitted a process since it was last recorded, and if it ever was."""

    passed_over: int = 0
    was_recorded: bool = False
    is_recorded: bool = False


@dataclass(slots=True)
class TurnScheduler:
    """Plans rounds."""

    saved: float | None = None
    """What earlier rounds did not spend; negative for a debt. None: before the first round.

    The first round has two more incomes, because opening processes costs more than recording."""
    left: float = 0.0
    """The budget of this round that no process has."""
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
        """The processes of the next round: at most `places`, within the budget.

        `spent` is the measured cost of the last round; `lasted` is its length, in usual lengths.
        Processes in `kept` come first.
        """
        candidates = sorted(candidates, key=lambda candidate: candidate.key)
        standings = self._standings
        self._standings = {
            candidate.key: standings.get(candidate.key, _Standing()) for candidate in candidates
        }
        before = _ADVANCE * income if self.saved is None else self.saved
        self.saved = min(before + (income - spent) * lasted, _MOST_SAVED * income)
        self.left, self._places_left = self.saved, places
        chosen: dict[Key, Candidate] = {}
        if self.saved > _ROUNDING and places > 0:
            for candidate in candidates:
                if candidate.key in kept and self._fits(candidate, places - len(chosen)):
                    self._take(candidate, chosen)
            self._choose(candidates, chosen)
        for candidate in candidates:
            standing = self._standings[candidate.key]
            standing.is_recorded = candidate.key in chosen
            standing.was_recorded |= standing.is_recorded
            standing.passed_over = 0 if standing.is_recorded else standing.passed_over + 1
        self._places_left -= len(chosen)
        return Plan(
            tuple(chosen),
            {
                candidate.key: self._why(candidate)
                for candidate in candidates
                if candidate.key not in chosen
            },
        )

    def spend(self, cost: float) -> None:
        """Take from this round what something else than recording costs, in processors."""
        self.left -= cost

    def admit(self, newcomer: Candidate) -> str:
        """Add a process to this round: "" if there is room for it, else the reason why not."""
        standing = self._standings.setdefault(newcomer.key, _Standing())
        if why := "" if self._fits(newcomer, self._places_left) else self._why(newcomer):
            return why
        self.left -= newcomer.cost
        self._places_left -= 1
        standing.is_recorded = standing.was_recorded = True
        standing.passed_over = 0
        return ""

    def _choose(self, candidates: list[Candidate], chosen: dict[Key, Candidate]) -> None:
        standing = self._standings
        waited = sorted(candidates, key=lambda candidate: -standing[candidate.key].passed_over)
        for candidate in waited[: not chosen]:
            self._take(candidate, chosen)
        if self.left <= 0:
            return
        queues: tuple[list[Candidate], ...] = (
            self._by(candidates, lambda candidate: -candidate.busy * self._steadiness(candidate)),
            self._by(
                [candidate for candidate in candidates if not standing[candidate.key].was_recorded],
                lambda candidate: candidate.age_s,
            ),
            self._by(candidates, lambda candidate: -candidate.busy * self._steadiness(candidate)),
            waited,
        )
        queues = tuple(list(reversed(queue)) for queue in queues)
        while any(queues):
            for queue in queues:
                while queue:
                    candidate = queue.pop()
                    if candidate.key not in chosen and self._fits(
                        candidate, self._places_left - len(chosen)
                    ):
                        self._take(candidate, chosen)
                        break

    def _by(
        self, candidates: list[Candidate], key: Callable[[Candidate], float]
    ) -> list[Candidate]:
        return sorted(candidates, key=key)

    def _steadiness(self, candidate: Candidate) -> float:
        return _STEADY if self._standings[candidate.key].is_recorded else 1.0

    def _take(self, candidate: Candidate, chosen: dict[Key, Candidate]) -> None:
        chosen[candidate.key] = candidate
        self.left -= candidate.cost

    def _fits(self, candidate: Candidate, places: int) -> bool:
        return places > 0 and candidate.cost <= self.left + _ROUNDING and self.left > 0

    def _why(self, candidate: Candidate) -> str:
        return PLACES if self._places_left <= 0 and candidate.cost <= self.left else BUDGET
