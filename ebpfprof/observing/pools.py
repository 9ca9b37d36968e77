"""Reads what pools of a program count, at the beginning and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.findings.pool_counts import DatabaseChange, PoolCounts
from ebpfprof.goruntime.waits.pools import PoolReader

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.waits.dump import GoroutineDumper
    from ebpfprof.profile.pools import SqlPool


class PoolObserver:
    """Finds the pools of one program in its dumps, and compares their counters.

    Its methods raise TargetGone or GoTableError.
    """

    def __init__(self, go: GoTarget) -> None:
        self._reader = PoolReader(go)
        self._before: dict[int, SqlPool] = {}

    def start(self, dumper: GoroutineDumper) -> None:
        """Read the counters, after the first dump."""
        dumper.find_pools(self._reader)
        self._before = {pool.address: pool for pool in self._reader.databases()}

    def finish(self, dumper: GoroutineDumper) -> PoolCounts:
        """How databases changed since start(), and other pools now, after the last dump."""
        dumper.find_pools(self._reader)
        changes = (
            DatabaseChange(self._before[pool.address], pool)
            for pool in self._reader.databases()
            if pool.address in self._before
        )
        return PoolCounts(tuple(changes), self._reader.semaphores(), self._reader.http())
