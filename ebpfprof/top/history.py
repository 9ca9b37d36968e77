"""How the rows of `ebpfprof top` went over the last samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ebpfprof.top.rows import Moment

_SAMPLES: Final = 120


@dataclass(frozen=True, slots=True)
class _Sample:
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

    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    def add(self, moment: Moment) -> None:
        """Keep the rates of a moment."""
        rates = {
            name: {row.number: row.rate or row.callees_rate for row in reading.rows}
            for name, reading in moment.readings.items()
        }
        kept = {name: {n: rate for n, rate in of.items() if rate} for name, of in rates.items()}
        self._samples.append(_Sample(moment.uptime_ns, kept))

    def of(self, view: str, number: int) -> Course:
        """How a row of a view went."""
        samples = self._samples
        length_ns = samples[-1].uptime_ns - samples[0].uptime_ns if samples else 0
        return Course(
            [sample.rates.get(view, {}).get(number, 0.0) for sample in samples], length_ns
        )
