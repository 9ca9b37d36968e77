"""Idle by behaviour: what samples of goroutines showed of a wait, and in words why it is idle."""

from dataclasses import dataclass
from typing import Literal

Cause = Literal["timer", "signal"]
_NEARLY_ALL = 0.9995


@dataclass(frozen=True, slots=True)
class IdleBehaviour:
    """A fixed set of goroutines that wait nearly all of the time for a timer or a signal.

    `goroutines` is their number, `share` the part of the time that they waited, 0 to 1.
    """

    goroutines: int
    share: float
    cause: Cause

    @property
    def name(self) -> str:
        """What it is, for tables: the name of its rule."""
        return "loop of a timer" if self.cause == "timer" else "loop of a signal"

    def __str__(self) -> str:
        is_one = self.goroutines == 1
        number = "one goroutine" if is_one else f"{self.goroutines} goroutines"
        share = (
            "nearly all" if self.share >= _NEARLY_ALL else f"{self.share:.1%}".replace("%", " %")
        )
        what = f"a {self.cause}" if is_one else f"{self.cause}s"
        return f"{number} that waited {share} of the time for {what}"


def together(behaviours: list[IdleBehaviour | None]) -> IdleBehaviour | None:
    """What holds for all of several sets of goroutines; None unless all of them are idle."""
    known = [behaviour for behaviour in behaviours if behaviour]
    if (
        not known
        or len(known) < len(behaviours)
        or len({behaviour.cause for behaviour in known}) > 1
    ):
        return None
    goroutines = sum(behaviour.goroutines for behaviour in known)
    share = sum(behaviour.share * behaviour.goroutines for behaviour in known) / goroutines
    return IdleBehaviour(goroutines, share, known[0].cause)
