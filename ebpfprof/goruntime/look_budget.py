"""What looks at goroutines may cost."""

from __future__ import annotations

import threading


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
