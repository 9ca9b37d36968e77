"""What looks at goroutines may cost."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

FIRST_LOOKS: Final = 50
"""So many looks come at the first rate, so that short recordings have enough of them."""


@dataclass(frozen=True, slots=True)
class LookRate:
    """How many looks a second there are to be: first `hz`, after FIRST_LOOKS looks `later_hz`."""

    hz: float
    later_hz: float

    def interval_s(self, looks: int, cost_s: float, share: float) -> float:
        """The mean time to the next look after `looks` of them.

        It is longer if a look takes more of a processor, `cost_s`, than the `share` allows.
        """
        hz = self.hz if looks < FIRST_LOOKS else self.later_hz
        return max(1 / hz, cost_s / share)


class LookBudget:
    """What the looks at all processes of a session may take together: a share of a processor."""

    def __init__(self, share: float = 0.02) -> None:
        self._share = share
        self._users = 0
        self._lock = threading.Lock()

    def join(self, change: int) -> None:
        """Count one process more, or with -1 one less."""
        with self._lock:
            self._users += change

    @property
    def share(self) -> float:
        """What the looks at one process may take, of a processor's time."""
        return self._share / max(self._users, 1)
