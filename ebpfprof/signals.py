"""What SIGINT, SIGTERM and SIGHUP do while something is recorded."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self


class Signals:
    """SIGINT, SIGTERM and SIGHUP: the first one ends the recording, any other aborts.

    To abort is to raise KeyboardInterrupt. A context manager.
    """

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.came = False
        """Whether the recording is to end."""
        self._aborts = True
        self._before: dict[int, Any] = {}

    def end_recording_only(self) -> None:
        """From now on there is something to write: the next signal only sets `came`."""
        self._aborts = False

    def __enter__(self) -> Self:
        for number in self._NUMBERS:
            # nohup ignores SIGHUP, and it should remain so.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._aborts:
            raise KeyboardInterrupt
        self.came = self._aborts = True
