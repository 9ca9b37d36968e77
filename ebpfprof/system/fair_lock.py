"""A lock that threads get in the order in which they asked for it.

threading.Lock goes to any of them: where many threads want it all the time, one may wait for ever.
"""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """A context manager; a thread that holds it must not ask again."""

    def __init__(self) -> None:
        self._inner = threading.Lock()
        self._is_held = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._inner:
            if not self._is_held:
                self._is_held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()  # until __exit__ of the one before hands it over

    def __exit__(self, *_: object) -> None:
        with self._inner:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_held = False
