"""Tracebacks of goroutines that move while they are read."""

from __future__ import annotations

import re

from ebpfprof.server import goroutines
from tests.kernel.programs import program
from tests.targets_run import Target

LEVELS = re.compile(r"^main\.(busyLeft|busyRight)\((0x[0-9a-f]+), ", re.MULTILINE)
NO_STACK = "\tgoroutine running on other thread; stack unavailable\n"
# An interrupted function may not have stored its arguments yet: Go, too, shows what lies there.
ENVIRONMENT = {"GODEBUG": "asyncpreemptoff=1"}


def test_tracebacks_under_load_are_of_one_moment() -> None:
    """Goroutines of parked -busy have levels of busyLeft only or of busyRight only.

    Each level has its number as an argument: they count up without a gap.
    """
    path = program("parked", mode="debug")
    with Target.start(path, "-busy=16", env=ENVIRONMENT) as target:
        seen = missing = 0
        for _ in range(100):
            text = goroutines.traceback(target.pid).decode()
            for record in text.split("\n\n"):
                levels = LEVELS.findall(record)
                assert len({name for name, _ in levels}) <= 1, record
                numbers = [int(number, 16) for _, number in levels]
                first = min(numbers, default=0)
                assert numbers == list(range(first, first + len(numbers))), record
                assert (NO_STACK in record) <= (not levels)
                seen += len(levels) > 1
                missing += NO_STACK in record
        target.kill()
    assert seen > 200
    assert missing < seen
