"""The charge of a release, by bpf/waits/locks.h, beside Python's arithmetic and a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.profilers.waits import wait_tables
from tests.unit.bpf.native import Native, build

pytestmark = pytest.mark.machine

PROGRAM = """
#include "waits/locks.h"
u64 charge_at(u64 queue, u64 charged, u64 now_ns) {
    struct lock lock = {.queue = queue, .charged = charged};
    return charge(&lock, queue, now_ns);
}
void join(u64 now_ns) {
    join_queue(0, 1, 0, now_ns);
}
void quit(u64 since_ns) {
    quit_queue(0, 1, since_ns);
}
u64 leave(u64 now_ns) {
    return release_queue(0, NULL, 1, now_ns, true, 0, 0);
}
u64 state(u64 field) {
    return field ? locks_rows[0].value.charged : locks_rows[0].value.queue;
}
"""
MACROS = {
    "BY_LOCK": 0,
    "WITH_LABELS": 0,
    "WITH_ALARM": 0,
    "WITH_EARLIER": 0,
    "WITH_ONE_IN_EIGHT": 0,
    "MUTEX_FRACTION": 1,
    "MAX_TARGETS": 1,
    "MAX_SITES": 1,
    "MAX_LOCKS": 2,
    "LOCK_CALLERS": 1,
    "COUNT_SHIFT": 16,
    "MAX_STACKS": 1,
    "MAX_DEPTH": 1,
    "MAX_LENGTHS": 1,
}
word = st.integers(0, (1 << 64) - 1)
UNIT_NS = 1 << wait_tables._UNIT_SHIFT


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    return Native(build(tmp_path_factory.mktemp("locks"), PROGRAM, MACROS))


@given(queue=word, left=st.one_of(word, st.integers(-2, 2)), now_ns=st.integers(0, (1 << 63) - 1))
def test_c_and_python_compute_the_same_rest_of_a_queue(
    queue: int, left: int, now_ns: int, native: Native
) -> None:
    waiters = queue % (1 << wait_tables._WAITERS_BITS)
    waited = waiters * (now_ns // UNIT_NS) - (queue >> wait_tables._WAITERS_BITS)
    charged = (waited - left) % (1 << 64)
    left_ns = wait_tables._left_in_queue_ns(queue, charged, now_ns)
    assert native.call("charge_at", queue, charged, now_ns) == left_ns


@given(
    start_ns=st.integers(1, 1 << 62),
    steps=st.lists(
        st.tuples(st.sampled_from(["join", "leave", "quit"]), st.integers(0, 10**12)), max_size=60
    ),
)
def test_a_release_is_charged_all_waiting_since_the_last_release(
    start_ns: int, steps: list[tuple[str, int]], native: Native
) -> None:
    native.call("forget_maps")
    now, last = start_ns // UNIT_NS, 0
    queue: list[int] = []
    for step, later in steps:
        now += later // UNIT_NS
        if step == "join" or not queue:
            native.call("join", now * UNIT_NS)
            queue.append(now)
        elif step == "quit" and queue[-1] == now:
            native.call("quit", queue.pop() * UNIT_NS)
        else:
            waited = sum(now - max(since, last) for since in queue)
            assert native.call("leave", now * UNIT_NS) == waited * UNIT_NS
            queue.pop(0)
            last = now
    now += 1
    left = sum(now - max(since, last) for since in queue)
    queue_word, charged = (native.call("state", field) for field in range(2))
    assert wait_tables._left_in_queue_ns(queue_word, charged, now * UNIT_NS) == left * UNIT_NS
