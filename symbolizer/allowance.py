"""What reading the files of one process may take of us, all of them together.

Each table has bounds of its own, but a process can map hundreds of files, and each of them can be
made to take as much as those bounds allow. So they share one allowance: bytes that are kept in
memory, and seconds of CPU time. What real programs take lies far below (docs/faults.md).
"""

import threading
import time
from collections.abc import Callable
from typing import Final, Self

from symbolizer.errors import TooMuchToRead

_MAX_BYTES: Final = 512 << 20
_MAX_CPU_S: Final = 30.0
_SHARE: Final = 0.1
"""Of the time that passes: a server asks for names for as long as it runs."""


class _Inside(threading.local):
    """How deep in contexts a thread is, and the CPU time that it had used when it came."""

    depth = 0
    entered_s = 0.0


class Allowance:
    """Counts what is kept of files, and the CPU time of what runs while this context is entered.

    Safe to be used by several threads. Contexts may lie within each other.
    """

    def __init__(
        self,
        *,
        max_bytes: int = _MAX_BYTES,
        max_cpu_s: float = _MAX_CPU_S,
        cpu_clock: Callable[[], float] = time.thread_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Allow so many bytes at a time, and so many seconds and a tenth of all that pass."""
        self.exceeded: str = ""
        """What was exceeded first, as the end of a sentence; "" if nothing was."""
        self._max_bytes, self._max_cpu_s = max_bytes, max_cpu_s
        self._cpu_clock, self._clock = cpu_clock, clock
        self._began_s = clock()
        self._lock = threading.Lock()
        self._kept_bytes = 0
        self._used_s = 0.0
        self._inside = _Inside()

    def keep(self, size_bytes: int) -> None:
        """Count what is kept from now on. Raises TooMuchToRead; then it is not counted."""
        with self._lock:
            if self._kept_bytes + size_bytes > self._max_bytes:
                raise self._exceeded(f"more than {self._max_bytes >> 20} MiB of memory")
            self._kept_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """What was kept no longer is."""
        with self._lock:
            self._kept_bytes -= size_bytes

    def check(self) -> None:
        """Raise TooMuchToRead if the time is used up."""
        inside = self._inside
        if inside.depth and self._cpu_clock() - inside.entered_s + self._used_s > self._max_s():
            raise self._exceeded(f"more than {self._max_s():.0f} s of CPU time")

    def __enter__(self) -> Self:
        """Begin to count the time of this thread. Raises TooMuchToRead if it is used up."""
        if not self._inside.depth:
            self._inside.entered_s = self._cpu_clock()
        self._inside.depth += 1
        try:
            self.check()
        except TooMuchToRead:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._inside.depth -= 1
        if not self._inside.depth:
            with self._lock:
                self._used_s += self._cpu_clock() - self._inside.entered_s

    def _max_s(self) -> float:
        return self._max_cpu_s + _SHARE * (self._clock() - self._began_s)

    def _exceeded(self, what: str) -> TooMuchToRead:
        self.exceeded = self.exceeded or what
        return TooMuchToRead(f"to read the files of this process takes {what}")
