"""The end of a recording, for which a thread waits that others may wake before."""

from __future__ import annotations

import threading


class RecordingEnd:
    """One thread waits; any thread may end the recording, or wake the one that waits."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self._has_come = threading.Event()

    @property
    def has_come(self) -> bool:
        """Whether the recording has ended."""
        return self._has_come.is_set()

    def come(self) -> None:
        """End the recording."""
        self._has_come.set()
        self.wake()

    def wake(self) -> None:
        """Have wait() return, now or the next time."""
        self._woken.set()

    def wait(self, seconds: float) -> bool:
        """Wait so long, to be woken, or for the end; whether it is the end."""
        self._woken.wait(seconds)
        self._woken.clear()
        return self.has_come

    def sleep(self, seconds: float) -> bool:
        """Wait so long or for the end; whether it is the end."""
        return self._has_come.wait(seconds)

    def put_off(self) -> None:
        """A new recording begins."""
        self._has_come.clear()
        self._woken.clear()
