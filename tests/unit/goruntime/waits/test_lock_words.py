"""Which words of a lock say that it is free for one that waits, and which moments they are."""

from __future__ import annotations

import pytest

from ebpfprof.goruntime.waits.lock_words import is_free, stays_held

LOCKED, WOKEN, STARVING, WAITER = 1, 2, 4, 8
WRITERS, READERS, IN_MUTEX = 8, 12, 4
MAX_READERS = 1 << 30


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (LOCKED, False),
        (LOCKED | 2 * WAITER, False),
        (LOCKED | WOKEN | WAITER, False),
        (LOCKED | STARVING | WAITER, False),
        (0, True),
        (WAITER, True),
        (WOKEN | WAITER, True),
        (STARVING | WAITER, True),
        (-WAITER, False),
        (1 << 30, False),
    ],
)
def test_a_mutex_is_free_if_it_is_not_locked_and_has_words_of_a_mutex(
    state: int, expected: bool
) -> None:
    assert is_free("sync.Mutex", {"state": state, "sema": 0}, IN_MUTEX) is expected
    words = {"state": state, "count": -MAX_READERS, "wait": 0}
    assert is_free("sync.RWMutex", words, IN_MUTEX) is expected


@pytest.mark.parametrize(
    ("count", "departing", "for_writer", "for_reader"),
    [
        (2 - MAX_READERS, 2, False, False),  # a writer waits for two readers
        (-MAX_READERS, 0, True, False),  # a writer holds it, or was just woken by the last reader
        (2, 0, True, True),  # no writer is announced
        (0, 0, True, True),
        (-MAX_READERS - 1, 0, False, False),  # no lock has such words
        (3, -1, False, False),
        (1 << 25, 0, False, False),
    ],
)
def test_a_rwmutex_is_free_for_writers_without_readers_and_for_readers_without_a_writer(
    count: int, departing: int, for_writer: bool, for_reader: bool
) -> None:
    words = {"state": LOCKED, "count": count, "wait": departing}
    assert is_free("sync.RWMutex", words, WRITERS) is for_writer
    assert is_free("sync.RWMutex", words, READERS) is for_reader


@pytest.mark.parametrize(
    ("state", "sema", "expected"),
    [
        (0, 0, True),
        (3, 0, True),
        (3 << 32 | 1, 0, False),
        (-1 << 32, 0, False),
        (0, 1 << 31, False),
    ],
)
def test_a_waitgroup_is_done_if_its_counter_is_0(state: int, sema: int, expected: bool) -> None:
    assert is_free("sync.WaitGroup", {"state": state, "sema": sema}, 8) is expected


MUTEX_HELD = {"state": 1, "sema": 0}


def test_a_mutex_stays_held_while_others_come_to_wait() -> None:
    spun = {"state": 1 | 2, "sema": 0}
    more = {"state": 1 | 2 << 3, "sema": 0}
    assert stays_held("sync.Mutex", [MUTEX_HELD, spun, more])
    assert not stays_held("sync.Mutex", [more, MUTEX_HELD])  # a waiter was woken
    assert not stays_held("sync.Mutex", [more, {"state": 2 << 3, "sema": 0}, more])


def test_readers_stay_while_others_come_behind_a_writer() -> None:
    held = {"state": 1, "writers": 0, "readers": 0, "count": 1 - (1 << 30), "wait": 1}
    more = {**held, "count": 3 - (1 << 30)}
    assert stays_held("sync.RWMutex", [held, more])
    assert not stays_held("sync.RWMutex", [more, held])
    assert not stays_held("sync.RWMutex", [held, {**more, "wait": 0}])
