"""The agent's log: a sentence per line on stderr, with a limit for similar lines."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Final

from ebpfprof.console.terminal import say
from ebpfprof.console.text import in_one_line, printable

PERIOD_S: Final = 600.0
MOST: Final = 5
"""The maximum number of lines per period that differ only in numbers and names."""
_MAX_SHAPES: Final = 256
_VARIES: Final = re.compile(r"[0-9]+|\([^)]*\)|'[^']*'")


class Log:
    """Writes sentences; any thread may use it."""

    def __init__(
        self,
        write: Callable[[str], None] = lambda line: say(line, err=True),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._clock = write, clock
        self._lock = threading.Lock()
        self._shapes: dict[str, tuple[float, int]] = {}

    def say(self, sentence: str) -> None:
        """Write a sentence, unless MOST similar ones were written in this period."""
        text = printable(in_one_line(sentence))
        shape = _VARIES.sub("#", text)
        with self._lock:
            now_s = self._clock()
            begun_s, count = self._shapes.get(shape, (now_s, 0))
            more = ""
            if now_s - begun_s >= PERIOD_S:
                if count > MOST:
                    more = f" ({count - MOST} more similar lines were omitted)"
                begun_s, count = now_s, 0
            if len(self._shapes) >= _MAX_SHAPES and shape not in self._shapes:
                self._shapes.clear()
            self._shapes[shape] = begun_s, count + 1
            if count < MOST:
                last = " (similar lines are omitted for ten minutes)"
                self._write(f"ebpfprof: {text}{more}{last if count + 1 == MOST else ''}")
