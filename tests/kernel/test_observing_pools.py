"""Counters of pools that are read from memory, against what the program itself reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.goruntime.waits.pools import PoolReader
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.pools import HttpPool
from tests.builds import in_full
from tests.faults.programs import built_module
from tests.go_target import inspect
from tests.targets_run import Target
from tests.toolchains import toolchain

POOLS = Path(__file__).parent.parent / "targets" / "pools"
WAITING, ASKED = 3, 3


@pytest.mark.parametrize("mode", ["plain", "stripped"])
@pytest.mark.parametrize("minor", [*in_full("1.19", "1.22", "1.23", "1.25"), "1.27"])
def test_pools_are_as_the_program_says(minor: str, mode: str) -> None:
    path = toolchain(minor).build(POOLS, mode)
    with Target.start(path) as target, Process(target.pid) as process:
        _, address = target.expect("http ").split()
        go = inspect(process)
        dumper, reader = GoroutineDumper(go), PoolReader(go)
        # Until a request waits for a connection, and all others are sent.
        while [pool.open for pool in reader.http()] != [ASKED]:
            dumper.dump_once()
            dumper.find_pools(reader)
        read = {pool.limit: pool for pool in reader.databases()}
        reported = json.loads(target.ask("stats", "["))
        assert reader.http() == (HttpPool(address, ASKED, ASKED),)
    assert len(read) == len(reported) == 2
    for one in reported:
        pool = read[one["MaxOpenConnections"]]
        assert (pool.open, pool.free) == (one["OpenConnections"], one["Idle"])
        assert (pool.in_use, pool.waits) == (one["InUse"], one["WaitCount"])
        assert pool.waited_ns == one["WaitDuration"]
    assert [pool.waiting for pool in read.values() if pool.limit] == [WAITING]


@pytest.mark.full
def test_a_semaphore_is_found_by_those_that_wait_for_it() -> None:
    with Target.start(built_module("weighted")) as target, Process(target.pid) as process:
        go = inspect(process)
        dumper, reader = GoroutineDumper(go), PoolReader(go)
        while not reader.semaphores():  # until requests have come
            dumper.dump_once()
            dumper.find_pools(reader)
        (semaphore,) = reader.semaphores()
    assert semaphore.size > 0
    assert 0 <= semaphore.used <= semaphore.size
