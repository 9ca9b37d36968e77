"""Lengths of waits in a pprof file of our own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import pprof
from ebpfprof.export.pprof import lengths
from ebpfprof.profile.model import Sample
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram
from tests.unit.export.small_profile import RECEIVE, SMALL, WORK

MS = 1_000_000


@given(
    st.lists(st.integers(0, (1 << 63) - 1), max_size=50),
    st.integers(0, 1 << 40),
    st.integers(1, 1000),
)
def test_what_is_written_is_read(lengths_ns: list[int], apart_ns: int, weight: int) -> None:
    waits = replace(WaitHistogram.of(lengths_ns), apart_ns=float(apart_ns), weight=weight / 4)
    if not lengths_ns:
        waits = NO_LENGTHS
    samples = Sample((WORK,), (9, 3), lengths=waits), Sample((RECEIVE,), (1, 8))
    written = pprof.encode(replace(SMALL, samples=samples), keeps_lengths=True)
    found = {sample.values: sample.lengths for sample in pprof.decode(written).samples}
    assert found == {(9, 3): waits, (1, 8): NO_LENGTHS}


def test_other_readers_see_the_same_profile() -> None:
    whole = replace(SMALL.samples[0], lengths=WaitHistogram.of([MS]))
    profile = replace(SMALL, samples=(whole, *SMALL.samples[1:]))
    assert pprof.decode(pprof.encode(profile, keeps_lengths=True)) == pprof.decode(
        pprof.encode(profile)
    )


@pytest.mark.parametrize(
    "content",
    [
        *(b"\x00", b"\x00\x10\x01", b"\x80"),
        *(b"\x00\x10" + b"\xff" * 10 + b"\x01\x01", b"\x00\x10\xff\x1f\x01"),
    ],
)
def test_damaged_lengths_are_refused(content: bytes) -> None:
    with pytest.raises(InvalidProfile):
        lengths.lengths_in(content)


def test_estimated_numbers_are_rounded() -> None:
    (content,) = _contents(1.4 * WaitHistogram.of([MS, MS, MS]))
    assert lengths.lengths_in(content) == WaitHistogram.of([MS] * 4)
    assert _contents(0.3 * WaitHistogram.of([MS])) == [b""]


def _contents(waits: WaitHistogram) -> list[bytes]:
    field = lengths.lengths_fields([Sample((WORK,), (9, 3), lengths=waits)])
    return [field[3:]]
