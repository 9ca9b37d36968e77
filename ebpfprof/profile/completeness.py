"""How much a profile lacks of what happened, and from when on that is a warning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ALARMING_SHARE: Final = 0.01
"""Losses of this part of all events and more may change what a profile says.

Terminal and page have a line for smaller ones.
"""
FOOTNOTE_SHARE: Final = 0.001
"""Losses of a smaller part are in the comments of a profile and with --long only."""


@dataclass(frozen=True, slots=True)
class Completeness:
    """Of the events in the recorded time, how many are `recorded`, and how many `lost` at most.

    Those that are there without a part, such as their labels, count as lost; one event that lacks
    two parts counts twice.
    """

    lost: int = 0
    recorded: float = 0.0

    @property
    def lost_share(self) -> float:
        """The part of all events that was lost, at most; 0 to 1."""
        return self.lost / (self.lost + self.recorded) if self.lost else 0.0

    @property
    def is_alarming(self) -> bool:
        """Whether the losses may change what the profile says."""
        return self.lost_share >= ALARMING_SHARE
