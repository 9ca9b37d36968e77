"""Pairs: a sample's stack is one that waited, a frame between, and one that woke it."""

from __future__ import annotations

from ebpfprof.export import pprof
from ebpfprof.profile.idle import rule_of
from ebpfprof.profile.model import Frame, Location, Mapping, Profile, Sample
from ebpfprof.profile.operations import operation_of, waiting_part
from ebpfprof.profile.wakers import NO_GOROUTINE, WOKEN_BY, are_pairs, waiter_of, waker_of
from ebpfprof.profilers.registry import kind_of
from ebpfprof.profilers.waits.kinds import BLOCK, MUTEX, WAKERS

MAIN = Mapping(0x400000, 0x500000, 0, "/srv/api", "")


def stack(*functions: str) -> tuple[Location, ...]:
    return tuple(
        Location(0x400001 + n, MAIN, (Frame(function, f"/src/{function}.go", n + 1),))
        for n, function in enumerate(functions)
    )


WAITED = stack("runtime.chanrecv1", "main.(*Pool).worker")
WOKE = stack("runtime.chansend1", "main.submit", "main.main")
PAIR = Sample((*WAITED, WOKEN_BY, *WOKE), (3, 300))
TIMED = Sample((*WAITED, WOKEN_BY, *stack("time.sendTime"), NO_GOROUTINE), (1, 100))


def profile(*samples: Sample) -> Profile:
    return WAKERS.make_profile(samples, [MAIN], time_ns=1, duration_ns=1)


def test_a_pair_has_two_stacks_and_other_samples_one() -> None:
    assert waiter_of(PAIR) == Sample(WAITED, (3, 300))
    assert waker_of(PAIR) == Sample(WOKE, (3, 300))
    alone = Sample(WAITED, (1, 1))
    assert waiter_of(alone) is alone
    assert waker_of(alone) is None
    assert are_pairs([PAIR, TIMED])
    assert not are_pairs([PAIR, alone])


def test_the_operation_is_that_of_what_waited() -> None:
    name, line = operation_of(PAIR)
    assert (name, line.function) == ("chan receive", "main.(*Pool).worker")
    assert waiting_part(PAIR) == WAITED


def test_it_is_idle_if_what_waited_is() -> None:
    rule = rule_of("wakers", PAIR)
    assert rule is not None
    assert rule == rule_of("block", waiter_of(PAIR))


def test_a_file_of_pairs_is_known_by_its_samples() -> None:
    written = profile(PAIR, TIMED)
    read = pprof.decode(pprof.encode(written))
    assert read.kind == "wakers"
    assert [(sample.locations, sample.values) for sample in read.samples] == [
        (each.locations, each.values) for each in written.samples
    ]
    types = WAKERS.sample_types
    assert kind_of(types, [PAIR]) is WAKERS
    assert kind_of(types, [waiter_of(PAIR)]) is BLOCK
    assert kind_of(types, [Sample(stack("sync.(*Mutex).Unlock"), (1, 1))]) is MUTEX
    assert kind_of(types, []) is BLOCK
