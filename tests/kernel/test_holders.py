"""Who holds a lock: a guess needs evidence, and what is known is the same in each run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builds import in_full
from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.targets_run import Target

_RUNS = 3


def dumped(target: Target) -> dict[str, Any]:
    output = verb("dump", "--json", "--apart", "0.1", "--pid", str(target.pid))
    assert output.code == 0, output.stderr
    found: dict[str, Any] = json.loads(output.stdout)
    return found


@pytest.mark.parametrize("way", ["condition", *in_full("value", "pointer", "global", "early")])
def test_a_goroutine_that_used_a_lock_before_is_not_a_holder(way: str) -> None:
    with Target.start(program("holders"), way) as target:
        (holder,) = [int(e.split()[1]) for e in target.output if e.startswith("holder ")]
        for _ in range(_RUNS):
            waits = [each["waits_for"] for each in dumped(target)["goroutines"]]
            locks = [wait["lock"] for wait in waits if wait and "lock" in wait]
            assert [lock["may_be_held_by"] for lock in locks] == [[holder]] * 3


def test_a_deadlock_is_certain_in_each_run_while_others_come_to_wait() -> None:
    with Target.start(program("holders"), "deadlock") as target:
        for _ in range(_RUNS):
            (found,) = dumped(target)["stuck"]
            assert found["kind"] == "deadlock"
            assert found["certain"], found
        target.kill()
