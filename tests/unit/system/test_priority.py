"""Threads that run before all others, and those that they start."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ebpfprof.system.priority import run_as_others, run_promptly

pytestmark = pytest.mark.machine

FIRST = (os.SCHED_FIFO, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK)


def policy() -> int:
    return os.sched_getscheduler(0)


def policies(*, with_children: bool) -> list[int]:
    """Of a thread that runs promptly, of one that it started, and of itself afterwards."""
    run_promptly(with_children=with_children)
    found = [policy()]
    child = threading.Thread(target=lambda: found.append(policy()))
    child.start()
    child.join()
    run_as_others()
    return [*found, policy()]


@pytest.mark.parametrize("with_children", [False, True])
def test_a_prompt_thread_starts_others_that_are_not_unless_meant(with_children: bool) -> None:
    with ThreadPoolExecutor(max_workers=1) as pool:
        itself, child, later = pool.submit(policies, with_children=with_children).result()
    assert itself in FIRST
    assert (child in FIRST) == with_children
    assert later == os.SCHED_OTHER
    assert policy() == os.SCHED_OTHER
