"""Files of the ring with numbers that nobody expects: refused, or read without what is wrong."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.errors import InvalidProfile
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.account import RecordingAccount
from ebpfprof.profilers.sample_coverage import SampleCoverage
from ebpfprof.ring.account import facts_of, is_estimate
from ebpfprof.ring.contents import facts, packed, unpacked
from ebpfprof.ring.reader import RingArchive
from ebpfprof.ring.typed import from_plain
from tests.unit.export.small_profile import SMALL
from tests.unit.ring.made_up import NS, Clock, ring, window
from tests.unit.ring.test_contents import (
    END_NS,
    PROCESS,
    START_NS,
    WINDOWS,
    estimated,
    with_facts,
)


@pytest.mark.parametrize("pid", [0, -1, 1 << 31])
def test_a_process_id_that_none_has_is_refused(pid: int) -> None:
    with pytest.raises(InvalidProfile, match="out of range"):
        packed(SMALL, replace(PROCESS, pid=pid), START_NS, END_NS)


def test_facts_that_unpack_to_more_than_they_should_are_refused() -> None:
    data = with_facts(packed(SMALL, PROCESS, START_NS, END_NS), {"more": "x" * 2_000_000})
    with pytest.raises(InvalidProfile, match="does not name its process"):
        facts(data)


def test_an_error_that_is_larger_than_any_number_of_its_size_is_the_largest() -> None:
    samples = [replace(sample, variance=1e30) for sample in SMALL.samples]
    _, after = unpacked(packed(replace(SMALL, samples=tuple(samples)), PROCESS, START_NS, END_NS))
    for each in after.samples:
        assert each.variance == pytest.approx((65504.0 * each.values[1]) ** 2)


@pytest.mark.parametrize("name", [b"Ee", b"Ec"])
@pytest.mark.parametrize("count", [0, 1, 3, 5000])
def test_errors_that_are_not_those_of_the_samples_are_left_out(count: int, name: bytes) -> None:
    """SMALL has two samples."""
    data = packed(SMALL, PROCESS, START_NS, END_NS)
    length = int.from_bytes(data[10:12], "little")
    errors = struct.pack(f"<{count}e", *[0.5] * count)
    extra = data[12 : 12 + length] + name + struct.pack("<H", len(errors)) + errors
    _, after = unpacked(data[:10] + struct.pack("<H", len(extra)) + extra + data[12 + length :])
    assert [(each.variance, each.count_variance) for each in after.samples] == [(0, 0)] * 2


def accounted(coverage: object) -> Profile:
    account = RecordingAccount("block", "t", "every event", NS, coverage=coverage)  # type: ignore[arg-type]  # a wrong type, as of an odd file
    return replace(SMALL, account=account)


def test_only_the_coverage_of_a_kind_is_kept_and_makes_an_estimate() -> None:
    assert facts_of(accounted(SampleCoverage(7, 60 * NS, 1, 2, 3.5))) is None
    assert facts_of(accounted(WINDOWS)) is not None
    assert is_estimate(accounted(WINDOWS))
    whole = replace(WINDOWS, every_ns=WINDOWS.length_ns, eighth_ns=0, windows_ns=0, windows=0)
    assert not whole.is_scaled
    assert not is_estimate(accounted(whole))
    assert not is_estimate(SMALL)
    assert is_estimate(estimated(SMALL))


def test_an_index_on_a_disk_that_fails_costs_a_reader_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def fails(place: str, **how: Any) -> sqlite3.Connection:  # noqa: ANN401 - as sqlite3.connect
        if ":memory:" in place:
            connection: sqlite3.Connection = connect(place, **how)
            return connection
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR"
        raise error

    with ring(tmp_path, Clock()) as writer:
        assert writer.write(window())
    monkeypatch.setattr(sqlite3, "connect", fails)
    with RingArchive(tmp_path) as archive:
        assert "can't be read (disk I/O error)" in archive.warning
        assert len(archive.between(0, 1 << 62).files) == 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (float, float("nan")),
        (float, 10**400),
        (float, "1"),
        (int, True),
        (int, 1.0),
        (tuple[int, int], [1]),
        (tuple[int, int], [1, 2, 3]),
        (tuple[int, ...], [1, "2"]),
        (Mapping[str, int], [1]),
        (int | None, "x"),
    ],
)
def test_values_of_another_type_are_refused(kind: object, value: object) -> None:
    with pytest.raises(InvalidProfile, match="is not one that ebpfprof writes"):
        from_plain(kind, value)
