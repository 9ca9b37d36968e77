"""Tracebacks of goroutines that move while they are read."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from unittest import mock

import pytest

from ebpfprof.goruntime.goroutines import tracebacks
from ebpfprof.server import goroutines
from tests.differential.test_tracebacks import still
from tests.go_target import read
from tests.kernel.programs import program
from tests.targets_run import Target

LEVELS = re.compile(r"^main\.(busyLeft|busyRight)\((0x[0-9a-f]+), ", re.MULTILINE)
NO_STACK = "\tgoroutine running on other thread; stack unavailable\n"
# An interrupted function may not have stored its arguments yet: Go, too, shows what lies there.
ENVIRONMENT = {"GODEBUG": "asyncpreemptoff=1"}


@pytest.mark.full
def test_tracebacks_under_load_are_of_one_moment() -> None:
    """Goroutines of parked -busy have levels of busyLeft only or of busyRight only.

    Each level has its number as an argument: they count up without a gap.
    """
    path = program("parked", mode="debug")
    with Target.start(path, "-busy=16", env=ENVIRONMENT) as target:
        seen = missing = 0
        for _ in range(100):
            text = read(target.pid, goroutines.traceback).decode()
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
    assert missing < 4 * seen  # the busier the machine, the more have moved on


GOID = re.compile(rb"^goroutine (\d+) ", re.MULTILINE)
CUT = b"...additional frames elided..."


@pytest.mark.parametrize(
    "limit",
    [
        mock.patch.object(tracebacks, "MOST_FRAMES", 300),
        mock.patch.object(tracebacks, "MOST_FRAMES_TOGETHER", 300),
        mock.patch.object(tracebacks, "MOST_FRAMES_OF_ONE", 40),
        mock.patch.object(tracebacks, "MOST_BYTES", 4096),
    ],
    ids=["frames", "frames together", "frames of one", "bytes"],
)
def test_a_target_cannot_make_stacks_use_all_memory(limit: AbstractContextManager[int]) -> None:
    """What is left out is reported; goroutines with small stacks are there as ever."""
    with still(program("tracebacks")) as target:
        whole = read(target.pid, goroutines.traceback)
        with limit:
            cut = read(target.pid, goroutines.traceback)
            text = read(target.pid, goroutines.text)
    assert CUT not in whole
    assert cut.count(CUT) > 5
    goids, all_goids = (set(GOID.findall(each)) for each in (cut, whole))
    # That of finalizers is the program's only while a function of the program is on its stack.
    assert goids <= all_goids
    assert len(goids) >= len(all_goids) - 1
    assert int(text.split(b"\n")[0].split()[-1]) == len(goids)


def test_a_target_cannot_make_labels_use_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with still(program("tracebacks")) as target:
        whole = read(target.pid, goroutines.text)
        monkeypatch.setattr(tracebacks, "MOST_LABEL_BYTES", 40)
        cut = read(target.pid, goroutines.text)
    left_out = b'# labels: {"labels_left_out":"all"}\n'
    assert left_out not in whole
    assert b'# labels: {"request":"first"}\n' in cut
    assert left_out in cut
    assert b'"long"' not in cut
