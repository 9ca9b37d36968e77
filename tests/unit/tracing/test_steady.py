"""Which states last, by looks that may miss what happens in between."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ebpfprof.goruntime.goroutines.heads import wait_of
from ebpfprof.tracing.steady import LEAST_LOOKS, SteadyStates

WAITING, REASON = 4, 14
EVERY_NS, LOOK_NS = 1_000_000, 1_000


def state(goid: int, sequence: int) -> int:
    return wait_of(WAITING, REASON, sequence, goid)


def looked(looks: Iterable[list[int]]) -> tuple[SteadyStates, int]:
    """After these looks, each of which found these states; and when the last one began."""
    found, began_ns = SteadyStates(), 0
    for each in looks:
        began_ns += EVERY_NS
        found.add(np.array(each, np.uint64), began_ns + LOOK_NS)
    return found, began_ns


def test_a_state_lasts_from_the_end_of_the_first_look_to_the_begin_of_the_last() -> None:
    one, other = state(7, 3), state(8, 3)
    found, now_ns = looked([[one]] * 3 + [[one, other]] * 10)
    lasted_ns = 12 * EVERY_NS - LOOK_NS
    assert found.lasted_ns(one, now_ns) == lasted_ns
    assert found.lasting(now_ns, lasted_ns).tolist() == [one]
    assert found.lasting(now_ns, lasted_ns + 1).tolist() == []
    assert found.lasting(now_ns, 9 * EVERY_NS - LOOK_NS).tolist() == [one, other]


def test_the_next_wait_of_a_goroutine_is_another_state() -> None:
    found, now_ns = looked([state(7, n % 256)] for n in range(300))
    assert found.lasting(now_ns, 1).tolist() == []


def test_one_look_in_between_that_does_not_find_it_ends_a_state() -> None:
    one = state(7, 3)
    found, now_ns = looked([[one]] * 10 + [[]] + [[one]] * LEAST_LOOKS)
    assert found.lasted_ns(one, now_ns) == (LEAST_LOOKS - 1) * EVERY_NS - LOOK_NS


def test_few_looks_prove_nothing() -> None:
    one = state(7, 3)
    for looks, lasting in ((LEAST_LOOKS - 1, []), (LEAST_LOOKS, [one])):
        found, now_ns = looked([[one]] * looks)
        assert found.lasting(now_ns, 1).tolist() == lasting
