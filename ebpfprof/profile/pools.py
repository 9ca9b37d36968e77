"""What pools of a program count themselves, at a moment: connections, semaphores."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SqlPool:
    """A database/sql.DB: what its method Stats reports.

    `open` connections are in use or being made, but for `free` ones, of `limit` (0: no limit).
    `waiting` goroutines want one. `waits` have ended or been given up since it was opened, which
    took `waited_ns` in all. `read_ns` is when it was read (CLOCK_MONOTONIC).
    """

    address: int
    open: int
    free: int
    limit: int
    waiting: int
    waits: int
    waited_ns: int
    read_ns: int

    @property
    def in_use(self) -> int:
        """Connections that goroutines use."""
        return self.open - self.free


@dataclass(frozen=True, slots=True)
class Semaphore:
    """A golang.org/x/sync/semaphore.Weighted: of its `size`, `used` is taken; `waiting` goroutines
    want some."""

    address: int
    size: int
    used: int
    waiting: int


@dataclass(frozen=True, slots=True)
class HttpPool:
    """Connections of a http.Transport: `open` to a host, which may have `limit`."""

    host: str
    open: int
    limit: int
