"""The process that keeps probes, asked directly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from ebpfprof import perf, uprobemulti
from ebpfprof.errors import AttachFailed
from ebpfprof.keeper import Keeper, Uprobe


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    multi = uprobemulti.is_offered()
    kept = Keeper(multi=multi)
    yield kept
    kept.detach()
    assert kept.failure is None  # it lives
    kept.close()


def test_no_probes_are_none(keeper: Keeper) -> None:
    keeper.attach(0, 0, os.getpid(), [], {}, anchor=(0, 0))


def test_an_error_that_nobody_thought_of_is_told(keeper: Keeper) -> None:
    program = perf.load_nothing("kprobe", uprobemulti.ATTACH_TYPE)
    no_pid: Any = "x"
    probes = [Uprobe("f", offset=0, address=0, cookie=0)]
    try:
        with pytest.raises(AttachFailed, match="A process that puts probes in failed: TypeError"):
            keeper.attach(0, program, no_pid, probes, {"f": program}, anchor=(0, 0))
    finally:
        os.close(program)
