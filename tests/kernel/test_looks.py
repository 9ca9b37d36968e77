"""Looks at all goroutines of a target: which of them have not moved, and since when."""

from __future__ import annotations

import pytest

from ebpfprof.goruntime.goroutines import parked_goroutines
from ebpfprof.goruntime.looks import GoroutineLooks
from ebpfprof.kernel.clock import kernel_now_ns
from tests.builds import VERSIONS
from tests.kernel.parked_program import running


@pytest.mark.parametrize("version", VERSIONS)
def test_a_goroutine_that_moved_stands_only_from_the_next_look_on(version: str) -> None:
    with running(version, "plain") as run, GoroutineLooks(run.go) as looks:
        (moving,) = run.reports["turnLeft"]["goids"]
        before_ns = kernel_now_ns()
        looks.look()
        first_ns = kernel_now_ns()
        run.target.ask("turn", "turned")
        looks.look()
        parked = parked_goroutines(run.go).goroutines
        (moved,) = [each for each in parked if each.goid == moving]
        others = {each.address for each in parked} - {moved.address}

        standing = looks.standing(parked)
        assert standing.keys() == others
        assert all(before_ns <= since_ns <= first_ns for since_ns in standing.values())

        looks.look()
        standing = looks.standing(parked)
        assert standing.keys() == {*others, moved.address}
        assert standing[moved.address] > first_ns
        run.target.kill()
