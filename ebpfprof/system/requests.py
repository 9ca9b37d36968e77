"""SIGUSR1 and SIGUSR2: somebody asks a recording to write what there is, and to continue.

SIGUSR2 is what `perf record --switch-output` takes. Without a handler both end a process.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

NUMBERS: Final = (signal.SIGUSR1, signal.SIGUSR2)


class WriteRequests:
    """Counts them from now on; for the main thread."""

    def __init__(self) -> None:
        self._came = self._taken = 0
        for number in NUMBERS:
            signal.signal(number, self._on_signal)

    def take(self) -> bool:
        """Whether one came since the last call."""
        came, self._taken = self._came > self._taken, self._came
        return came

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._came += 1
