"""Counters of waits by fixed bounds: what they count, and that they never fall."""

from __future__ import annotations

import pytest

from ebpfprof.profile.length_counts import BOUNDS_NS, KnownWaits, LengthCounts, known_waits
from ebpfprof.profile.model import Frame, Location, Profile, Sample
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram
from ebpfprof.profilers.waits.kinds import BLOCK

MS = 1_000_000
LOCK = Location(1, None, (Frame("sync.(*Mutex).Lock", "mutex.go", 1),))
RECEIVE = Location(2, None, (Frame("runtime.chanrecv1", "chan.go", 1),))
PAY = Location(3, None, (Frame("main.pay", "pay.go", 7),))
WORKER = Location(4, None, (Frame("main.worker", "worker.go", 9),))


def block(*samples: Sample) -> Profile:
    return BLOCK.make_profile(samples, [], time_ns=1, duration_ns=1)


def below(counts: LengthCounts) -> dict[int, float]:
    """How many waits are not longer than each bound, where that changes."""
    found = dict(zip(BOUNDS_NS, counts.counts, strict=False))
    return {bound: found[bound] for bound in found if found[bound] != found.get(bound // 2, 0)}


def test_bounds_are_limits_of_buckets() -> None:
    assert [SCALE.lower_ns(SCALE.bucket_of(bound)) for bound in BOUNDS_NS] == list(BOUNDS_NS)


def test_waits_are_counted_below_the_bounds_that_they_do_not_exceed() -> None:
    lengths_ns = [10, 1000, 1030, 5 * MS, 1 << 40]
    counts = LengthCounts()
    counts.add(KnownWaits(WaitHistogram.of(lengths_ns), sum(lengths_ns)))
    assert below(counts) == {1 << 10: 2, 1 << 11: 3, 1 << 23: 4}
    assert counts.counts[-1] == 5
    assert counts.ns == sum(lengths_ns)
    assert counts.counts == sorted(counts.counts)


def test_times_add_up_and_copies_stay() -> None:
    counts = LengthCounts()
    counts.add(KnownWaits(WaitHistogram.of([MS]), MS))
    before = counts.copy()
    counts.add(KnownWaits(WaitHistogram.of([MS, 4 * MS]), 5 * MS))
    assert (before.counts[-1], before.ns) == (1, MS)
    assert (counts.counts[-1], counts.ns) == (3, 6 * MS)


def test_a_wait_that_counts_as_longer_now_takes_nothing_from_a_counter() -> None:
    counts = LengthCounts()
    counts.add(KnownWaits(WaitHistogram.of([MS]), MS))
    moved = WaitHistogram.of([8 * MS]) - WaitHistogram.of([MS])
    before = counts.copy()
    counts.add(KnownWaits(moved, 7 * MS))
    assert all(now >= was for now, was in zip(counts.counts, before.counts, strict=True))
    assert counts.counts[-1] == 1


def test_idle_waits_and_waits_of_unknown_length_do_not_count() -> None:
    found = known_waits(
        block(
            Sample((LOCK, PAY), (4, 40 * MS), lengths=WaitHistogram.of([10 * MS] * 3)),
            Sample((LOCK, WORKER), (9, 9 * MS)),
            Sample((RECEIVE, WORKER), (5, 500 * MS), lengths=WaitHistogram.of([100 * MS] * 5)),
        )
    )
    assert found.lengths == WaitHistogram.of([10 * MS] * 3)
    assert found.ns == pytest.approx(30 * MS)


def test_a_profile_without_lengths_has_no_known_waits() -> None:
    assert not known_waits(block(Sample((LOCK, PAY), (4, 40 * MS))))
