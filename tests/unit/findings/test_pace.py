"""How often goroutines wait, by which of the waits in progress began right before a dump."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ebpfprof.findings.moments import Moments, moments_of
from ebpfprof.findings.pace import WaitPace, often, pace_of
from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump
from tests.unit.findings.evidence import LOCK, dump, goroutine

MS = 1_000_000
LEADS_NS = (300_000, 1_800_000, 6_300_000, 25_300_000, 100_300_000)


def dumps(
    length_ns: float,
    per_second: float,
    *,
    seed: int = 45,
    together: int = 1,
    is_random: bool = False,
) -> list[GoroutineDump]:
    """Dumps at random moments of waits of a mean length, of which some begin together."""
    draws = random.Random(seed)
    found = []
    for _ in range(20):
        members: list[DumpedGoroutine] = []
        before_ns = 0.0
        while before_ns < 10 * length_ns:
            before_ns += draws.expovariate(per_second / together) * 1e9
            if before_ns >= (draws.expovariate(1 / length_ns) if is_random else length_ns):
                continue
            # A lower bound: since the first sample that saw it.
            leads = [lead_ns for lead_ns in LEADS_NS if lead_ns <= before_ns + LEADS_NS[0]]
            for _ in range(together):
                goid = len(members) + 1
                waited_ns = max(leads, default=0)
                members.append(goroutine(goid, "sync.Mutex.Lock", *LOCK, waited_ns=waited_ns))
        found.append(replace(dump(*members), leads_ns=LEADS_NS))
    return found


def paced(moments: Moments, mean: float) -> WaitPace | None:
    return pace_of(moments, moments.where(lambda _: True), mean)


@pytest.mark.parametrize("length_ms", [5, 18, 70, 300])
@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("is_random", [False, True])
def test_the_pace_is_right_within_its_error(
    length_ms: float, together: int, *, is_random: bool
) -> None:
    errors = []
    for seed in range(40):
        observed = dumps(
            length_ms * MS, 4000 / length_ms, seed=seed, together=together, is_random=is_random
        )
        if pace := paced(moments_of(observed), 4.0):
            assert pace.each_ns * pace.per_second == pytest.approx(4e9)
            errors.append((pace.each_ns / (length_ms * MS) - 1) / pace.error)
    assert len(errors) >= 15
    assert sum(abs(error) > 2 for error in errors) <= 0.15 * len(errors)


def test_waits_that_are_shorter_than_samples_are_apart_have_no_pace() -> None:
    assert paced(moments_of(dumps(1 * MS, 4000)), 4.0) is None


def test_few_waits_have_no_pace() -> None:
    assert paced(moments_of(dumps(18 * MS, 20)), 0.4) is None
    assert paced(moments_of([]), 0.4) is None
    assert paced(moments_of([dump(goroutine(1, "sync.Mutex.Lock", *LOCK))]), 1.0) is None


def test_waits_that_all_begin_together_have_no_pace() -> None:
    """A group of them is one event: how many began lately is known too badly."""
    assert paced(moments_of(dumps(70 * MS, 60, together=10)), 1.8) is None


def test_waits_that_began_after_the_last_sample_do_not_count() -> None:
    """A dump reads goroutines that moved meanwhile again, so it finds too many of these."""
    observed = dumps(18 * MS, 200)
    late = [goroutine(goid, "sync.Mutex.Lock", *LOCK) for goid in range(100, 120)]
    more = [replace(one, goroutines=(*one.goroutines, *late)) for one in observed]
    assert paced(moments_of(more), 4.0) == paced(moments_of(observed), 4.0)


def test_the_pace_in_words() -> None:
    assert str(WaitPace(283, 17_400_000, 0.15)) == "280 ± 40 times a second, about 17 ms each"
    assert str(WaitPace(0.43, 2.1e9, 0.2)) == "0.43 ± 0.09 times a second, about 2.1 s each"
    assert str(WaitPace(12_345, 90_000, 0.1)) == "12,000 ± 1,000 times a second, about 90 us each"
    moments = moments_of(dumps(18 * MS, 222))
    assert often(moments, moments.where(lambda _: True), 4.0).startswith(", ")
    assert often(moments, [], 4.0) == ""
