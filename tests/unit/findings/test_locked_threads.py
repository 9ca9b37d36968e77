"""Goroutines that are locked to threads and hand over to each other."""

from __future__ import annotations

import pytest

from ebpfprof.findings import locked_threads as rule
from ebpfprof.findings.finding import Finding
from tests.unit.findings.evidence import HANDLER, SEND, dump, evidence, goroutine, waits
from tests.unit.findings.host_evidence import host

DRAW = (*SEND, "main.(*renderer).draw:34", *HANDLER)


def found(
    *, locked: int = 5, others: float = 1, switches: int = 200_000, moves: bool = True
) -> list[Finding]:
    dumps = [
        dump(
            *(
                goroutine(n, "chan send", *DRAW, is_locked=True, wait=at * moves * 100 + n)
                for n in range(1, locked + 1)
            )
        )
        for at in range(4)
    ]
    of = evidence(
        waits("chan send", *DRAW, mean=locked),
        waits("chan send", *SEND, "main.f", *HANDLER, mean=others),
        dumps=dumps,
        host=host(switches=switches),
    )
    return list(rule.find(of))


def test_locked_goroutines_that_take_turns() -> None:
    (finding,) = found()
    assert finding.kind == "locked_threads"
    assert finding.title == (
        "LockOSThread: 83 % of goroutines at work are locked to threads and take turns."
    )
    assert finding.lines == (
        "Threads switch 20,000 times a second; 100 % of the goroutines are in "
        "main.(*renderer).draw (renderer.go:34).",
    )


def test_locked_goroutines_that_are_no_fault() -> None:
    assert found(switches=20_000) == []
    assert found(moves=False) == []
    assert found(locked=1, others=0) == []
    assert found(others=30) == []
    assert list(rule.find(evidence())) == []


@pytest.mark.parametrize("before", [1, 3, 5])
def test_a_goroutine_moves_only_in_the_dumps_next_to_its_step(before: int) -> None:
    """Two of six dumps: a third of the time."""
    dumps = [
        dump(*(goroutine(n, "chan send", *DRAW, is_locked=True, wait=step) for n in range(1, 10)))
        for step in [1] * before + [2] * (6 - before)
    ]
    of = evidence(waits("chan send", *DRAW, mean=9), dumps=dumps, host=host(switches=200_000))
    (finding,) = rule.find(of)
    assert finding.title.startswith("LockOSThread: 33 % of goroutines")
