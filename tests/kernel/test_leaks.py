"""A hundred attaches and detaches leave nothing: no probe, BPF object, file, thread or memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.kernel_state import BpfObject, await_gone, has_probes
from tests.kernel.programs import program
from tests.targets_run import Target

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[2]
NICE = Path("/usr/bin/nice")
ROUNDS = 25  # with four targets each
# The first compilations allocate what the later ones use again.
WARM_UP = 5
MAX_GROWTH_KIB = 16 << 10


@pytest.mark.full
def test_a_hundred_attaches_leave_nothing() -> None:
    with (
        # Load on all processors, but not so much that the loop starves.
        Target.start(NICE, "-n19", str(program("checker"))) as checker,
        Target.start(NICE, "-n19", str(program("checker", "1.19", "pie"))) as other_checker,
        Target.start(program("ticker", "1.23", "stripped")) as ticker,
        Target.start(program("ticker")) as other_ticker,
    ):
        pids = [target.pid for target in (checker, other_checker, ticker, other_ticker)]
        held = []
        for after in rounds(*pids):
            assert not any(map(has_probes, pids))
            held.append(after)
        for target in (checker, other_checker):
            assert target.ask("check", "").startswith("ok ")
        for target in (ticker, other_ticker):
            target.ask("wait", "done")

    assert len(held) * len(pids) == 100
    assert all(any(of_target) for of_target in zip(*column(held, "samples"), strict=True))
    # The first time, modules and libraries are loaded.
    assert len({tuple(files) for files in column(held, "files")[1:]}) == 1
    assert len(set(column(held, "threads")[1:])) == 1
    memory = column(held, "resident_kib")
    assert memory[-1] - memory[WARM_UP] < MAX_GROWTH_KIB, memory

    objects = [{BpfObject(*each) for each in of_round} for of_round in column(held, "objects")]
    assert all(objects)
    assert len(set.union(*objects)) == sum(map(len, objects))
    await_gone(set.union(*objects))


def rounds(*pids: int) -> Iterator[dict[str, Any]]:
    """What is held after each round, read while the loop waits."""
    arguments = ["-m", "tests.kernel.attach_loop", str(ROUNDS), *map(str, pids)]
    # One heap: else memory depends on which thread happens to use which.
    env = {"PYTHONPATH": str(ROOT), "MALLOC_ARENA_MAX": "1"}
    with Target.start(Path(sys.executable), *arguments, env=env, ready=None) as loop:
        for _ in range(ROUNDS):
            yield json.loads(loop.expect("round ").removeprefix("round "))
            loop.say("go on")


def column(held: list[dict[str, Any]], name: str) -> list[Any]:
    return [each[name] for each in held]
