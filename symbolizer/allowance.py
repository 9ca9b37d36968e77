"""How much memory and CPU time ebpfprof spends on all files of one process together.

Each table has bounds of its own, but a process can map hundreds of files, and each of them can be
made to use as much as those bounds allow. So they share one allowance: bytes that are kept in
memory, and seconds of CPU time. Real programs use far less (docs/faults.md).
"""

import threading
import time
from collections.abc import Callable
from typing import Final, Self

from symbolizer.errors import TooMuchToRead

_MAX_BYTES: Final = 512 << 20
_MAX_CPU_S: Final = 30.0
SHARE: Final = 0.1
"""CPU time per elapsed time that is allowed on top: a server needs names for as long as it runs."""


class _Inside(threading.local):
    """How many contexts a thread is in, and the CPU time that it had used when it entered."""

    depth = 0
    entered_s = 0.0


class Allowance:
    """Counts the bytes that are kept of files, and the CPU time that is spent inside this context.

    Several threads may use it at the same time. Contexts may be nested.
    """

    def __init__(
        self,
        *,
        max_bytes: int = _MAX_BYTES,
        max_cpu_s: float = _MAX_CPU_S,
        cpu_clock: Callable[[], float] = time.thread_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Allow `max_bytes` at a time, and `max_cpu_s` plus a tenth of the elapsed time."""
        self.exceeded: str = ""
        """Which limit was exceeded first, as the end of a sentence; "" if none was."""
        self.max_cpu_s = max_cpu_s
        """The CPU time that is allowed at first."""
        self._max_bytes = max_bytes
        self._cpu_clock, self._clock = cpu_clock, clock
        self._began_s = clock()
        self._lock = threading.Lock()
        self._kept_bytes = 0
        self._used_s = 0.0
        self._inside = _Inside()

    def keep(self, size_bytes: int) -> None:
        """Count bytes that are kept from now on. Raises TooMuchToRead, and counts none then."""
        with self._lock:
            if self._kept_bytes + size_bytes > self._max_bytes:
                raise self._exceeded(f"more than {self._max_bytes >> 20} MiB of memory")
            self._kept_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Count bytes as no longer kept."""
        with self._lock:
            self._kept_bytes -= size_bytes

    def check(self) -> None:
        """Raise TooMuchToRead if the CPU time is used up."""
        inside = self._inside
        if inside.depth and self._cpu_clock() - inside.entered_s + self._used_s > self._max_s():
            raise self._exceeded(f"more than {self._max_s():.0f} s of CPU time")

    def __enter__(self) -> Self:
        """Start to count this thread's CPU time. Raises TooMuchToRead if no time is left."""
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
        return self.max_cpu_s + SHARE * (self._clock() - self._began_s)

    def _exceeded(self, resource: str) -> TooMuchToRead:
        self.exceeded = self.exceeded or resource
        return TooMuchToRead(f"reading the files of this process takes {resource}")
