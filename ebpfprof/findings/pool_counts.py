"""What pools of a program count themselves: how that changed during the observation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebpfprof.console.text import counted, duration
from ebpfprof.findings.words import rounded

if TYPE_CHECKING:
    from ebpfprof.profile.pools import HttpPool, Semaphore, SqlPool


@dataclass(frozen=True, slots=True)
class DatabaseChange:
    """A pool of connections at two moments. Its counters are those of the program, and exact."""

    before: SqlPool
    after: SqlPool

    @property
    def waits(self) -> int:
        """How many waits for a connection began in between."""
        return self.after.waits - self.before.waits

    @property
    def waited_ns(self) -> int:
        """How long the waits took that ended in between."""
        return self.after.waited_ns - self.before.waited_ns

    def sentence(self) -> str:
        """The pool in words: "4 of 4 connections in use; 220 waits a second, 35 ms each"."""
        after, passed_ns = self.after, self.after.read_ns - self.before.read_ns
        number = f"{after.in_use} of {after.limit}" if after.limit else f"{after.in_use}"
        parts = [f"{number} connections in use", f"{counted(after.waiting, 'goroutine')} waiting"]
        if self.waits and passed_ns > 0:
            mean = duration(self.waited_ns / self.waits, 2)
            parts.append(f"{rounded(self.waits * 1e9 / passed_ns)} waits a second, {mean} each")
        return f"{', '.join(parts)}."


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """The pools that were found in memory; `http` only while goroutines wait for connections."""

    databases: tuple[DatabaseChange, ...] = ()
    semaphores: tuple[Semaphore, ...] = ()
    http: tuple[HttpPool, ...] = ()
