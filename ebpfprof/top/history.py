"""How the rows of `ebpfprof top` went over the last samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ebpfprof.top.rows import Moment

_LOOKS: Final = 120


@dataclass(frozen=True, slots=True)
class _Look:
    uptime_ns: int
    rates: dict[str, dict[int, float]]  # by view and number of the row, without zeros


@dataclass(frozen=True, slots=True)
class Course:
    """The rates of a row, the oldest first, and the time between the first and the last sample."""

    rates: Sequence[float]
    length_ns: int


@dataclass(slots=True)
class Courses:
    """The rates of all rows in the last samples, at most 120."""

    _looks: deque[_Look] = field(default_factory=lambda: deque(maxlen=_LOOKS))

    def add(self, moment: Moment) -> None:
        """Keep the rates of a moment."""
        rates = {
            name: {row.number: row.rate or row.callees_rate for row in reading.rows}
            for name, reading in moment.readings.items()
        }
        kept = {name: {n: rate for n, rate in of.items() if rate} for name, of in rates.items()}
        self._looks.append(_Look(moment.uptime_ns, kept))

    def of(self, view: str, number: int) -> Course:
        """How a row of a view went."""
        looks = self._looks
        length_ns = looks[-1].uptime_ns - looks[0].uptime_ns if looks else 0
        return Course([look.rates.get(view, {}).get(number, 0.0) for look in looks], length_ns)
