"""Lengths of waits as labels of samples in files."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import pprof
from ebpfprof.profile.length_labels import KEY, by_length, put_together
from ebpfprof.profile.model import Label, Profile, Sample
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram
from tests.unit.export.small_profile import LOCK, RECEIVE, SMALL, WORK

MS = 1_000_000
TENANT = Label("tenant", "a")


def profile_of(*samples: Sample) -> Profile:
    return replace(SMALL, samples=samples)


def lengths_in(profile: Profile) -> list[tuple[str | int, int]]:
    """The label and the count of each sample."""
    return [
        (next(label.value for label in each.labels if label.key == KEY), each.values[0])
        for each in profile.samples
    ]


def test_each_bucket_is_a_sample_with_its_length() -> None:
    lengths = WaitHistogram.of([MS] * 3 + [40 * MS])
    whole = Sample((RECEIVE, WORK), (4, 43 * MS), (TENANT,), lengths=lengths)
    found = by_length(profile_of(whole))
    middles = [int(SCALE.middle_ns(SCALE.bucket_of(ns))) for ns in (MS, 40 * MS)]
    assert lengths_in(found) == [(middles[0], 3), (middles[1], 1)]
    assert all(each.labels[0] == TENANT for each in found.samples)
    assert sum(each.values[1] for each in found.samples) == 43 * MS


def test_waits_of_unknown_length_have_no_label() -> None:
    whole = Sample((WORK,), (10, 10 * MS), lengths=WaitHistogram.of([MS] * 4))
    known, rest = by_length(profile_of(whole)).samples
    assert (known.values[0], rest.values[0], rest.labels) == (4, 6, ())


def test_a_profile_without_lengths_stays_as_it_is() -> None:
    assert by_length(SMALL) == SMALL
    assert put_together(SMALL) is SMALL


@given(
    st.lists(st.integers(1, 1 << 40), min_size=1, max_size=50),
    st.integers(1, 1 << 50),
    st.integers(0, 100),
)
def test_what_is_written_is_read(lengths_ns: list[int], delay_ns: int, unknown: int) -> None:
    lengths = WaitHistogram.of(lengths_ns)
    one = Sample((LOCK, WORK), (len(lengths_ns) + unknown, delay_ns), (TENANT,), lengths=lengths)
    other = Sample((RECEIVE,), (1, 5))
    written = replace(profile_of(one, other), has_length_labels=True)
    read = pprof.decode(pprof.encode(written), kind="block")
    found = {sample.values: sample for sample in read.samples}
    assert found.keys() == {one.values, other.values}
    assert found[one.values].lengths == lengths
    assert found[one.values].labels == one.labels
    assert not found[other.values].lengths
    assert pprof.encode(read) == pprof.encode(written)


def test_estimated_lengths_add_up_to_the_count() -> None:
    lengths = 1.7 * WaitHistogram.of([MS, 2 * MS, 4 * MS, 8 * MS])
    whole = Sample((WORK,), (6, 50 * MS), lengths=lengths)
    parts = by_length(profile_of(whole)).samples
    assert [sum(column) for column in zip(*(each.values for each in parts), strict=True)] == [
        *whole.values
    ]


def test_without_the_option_files_have_no_lengths() -> None:
    whole = Sample((WORK,), (2, 2 * MS), lengths=WaitHistogram.of([MS, MS]))
    plain = replace(whole, lengths=WaitHistogram())
    assert pprof.encode(profile_of(whole)) == pprof.encode(profile_of(plain))


def test_values_of_a_hostile_file_may_not_exceed_64_bits() -> None:
    labels = [(Label(KEY, ns, "nanoseconds"),) for ns in (100, 1000)]
    profile = profile_of(*(Sample((WORK,), (1 << 62, 1), each) for each in labels))
    with pytest.raises(InvalidProfile):
        put_together(profile)
    most = (1 << 63) - 1
    fitting = profile_of(
        Sample((WORK,), (most - 1, 1), labels[0]), Sample((WORK,), (1, 1), labels[1])
    )
    assert put_together(fitting).samples[0].values == (most, 2)
