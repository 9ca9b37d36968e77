"""What is known well enough to be shown: one rule for all tables."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ebpfprof.export import json_profile
from ebpfprof.export.tables import diff, largest, locks
from ebpfprof.export.tables.finding import finding
from ebpfprof.profile.evidence import (
    FEW_RELEASES,
    UNKNOWN_RELEASE,
    are_releases_known,
    is_ranked,
    unranked_line,
)
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Frame, Location, Lock, Profile, Sample
from ebpfprof.profilers.waits.kinds import BLOCK, MUTEX, WAKERS
from ebpfprof.top.rows import Snapshot, shown
from ebpfprof.top.table import TopTable
from tests.unit.export.tables.test_operations import stack

MS = 1_000_000
S = 1_000_000_000
HOW = f"{FEW_RELEASES}: those of 90 % of the delay are not known; --max-overhead 0 records all"


def unlock(function: str, count: int, ns: int) -> Sample:
    return Sample(stack("sync.(*Mutex).Unlock", function), (count, ns))


def unknown(ns: int) -> Sample:
    return Sample((UNKNOWN_RELEASE,), (0, ns))


def profile(kind: ProfileKind, *samples: Sample, duration_ns: int = 10 * S) -> Profile:
    return kind.make_profile(samples, [], time_ns=0, duration_ns=duration_ns, comments=[HOW])


def text(found: Profile) -> str:
    return largest.render(found, width=None, color=False)


ROUGH = Sample(stack("runtime.selectgo", "main.rough"), (1, 30 * S), variance=(40.0 * S) ** 2)
SURE = Sample(stack("runtime.selectgo", "main.sure"), (20, 2 * S), variance=(0.1 * S) ** 2)
LESS = Sample(stack("runtime.chansend1", "main.less"), (10, 1 * S))


@pytest.mark.parametrize(
    ("value", "error", "expected"), [(10, 0, True), (10, 5, True), (10, 5.1, False), (0, 0, True)]
)
def test_a_rank_needs_an_error_of_half_the_value_at_most(
    value: float, error: float, expected: bool
) -> None:
    assert is_ranked(value, error**2) is expected


@pytest.mark.parametrize("kind", [BLOCK, WAKERS])
def test_a_rough_row_has_no_line_and_no_part_of_the_shares(kind: ProfileKind) -> None:
    found = text(profile(kind, ROUGH, SURE, LESS))
    assert "main.rough" not in found
    assert found.index("main.sure") < found.index("main.less")
    if kind is BLOCK:
        assert "66.7%" in found
        assert "33.3%" in found
    assert found.endswith("1 more row was seen too few times to rank.\n")


def test_the_line_counts_rows() -> None:
    assert unranked_line(0) == ""
    assert unranked_line(1234) == "1,234 more rows were seen too few times to rank.\n"


def test_top_lists_rough_rows_last_and_without_a_share() -> None:
    reading = TopTable("block").read([Snapshot(1, S, profile(BLOCK, ROUGH, SURE, LESS))])
    rows = shown(reading)
    assert [row.key.name for row in rows.rows] == ["main.sure", "main.less", "main.rough"]
    assert rows.rate == pytest.approx(3.0)


def test_few_recorded_releases_have_no_lines() -> None:
    found = profile(MUTEX, unlock("main.hit", 900, 50 * MS), unknown(950 * MS))
    assert not are_releases_known(found.samples)
    assert text(found) == f"1.00 s of waiting for locks. {HOW[0].upper()}{HOW[1:]}.\n"
    assert HOW[1:] in json.loads(json_profile.encode(found))["few_releases"]


def test_releases_are_listed_when_nearly_all_are_known() -> None:
    found = profile(MUTEX, unlock("main.hit", 900, 950 * MS), unknown(50 * MS))
    assert "main.hit" in text(found)
    assert "few_releases" not in json.loads(json_profile.encode(found))


def test_what_has_a_time_and_no_count_has_no_mean() -> None:
    found = text(profile(MUTEX, unlock("main.hit", 900, 950 * MS), unknown(50 * MS)))
    (row,) = [line for line in found.splitlines() if "release not recorded" in line]
    assert row.split()[2:5] == ["5.0%", "-", "-"]


def test_a_lock_with_few_recorded_releases_has_no_count_and_no_means() -> None:
    waits = (Sample(stack("sync.(*Mutex).Lock", "main.get"), (500, 1 * S)),)
    releases = (unlock("main.hit", 900, 50 * MS), unknown(950 * MS))
    rare = Lock(0xC000, "sync.Mutex", "main.mu", waits, releases, holds=400, held_ns=4 * MS)
    found = locks.render([rare], width=None, color=False).splitlines()
    assert found[1].split()[:7] == ["1.00", "s", "100.0%", "-", "-", "-", "main.mu"]
    assert not any("released by" in line for line in found)
    assert any("waited for by main.get" in line for line in found)
    sentence = finding(profile(MUTEX, *releases), [rare])
    assert "main.mu" in sentence
    assert "held" not in sentence
    known = replace(rare, releases=(unlock("main.hit", 900, 1 * S),))
    assert "released by main.hit" in locks.render([known], width=None, color=False)


def test_a_comparison_lists_no_rough_rows_and_no_unknown_releases() -> None:
    before = profile(BLOCK, SURE, LESS)
    found = diff.render(profile(BLOCK, ROUGH, SURE), before, width=None, color=False)
    assert "main.rough" not in found
    assert "1 more row was seen too few times to rank." in found
    after = profile(MUTEX, unlock("main.hit", 900, 50 * MS), unknown(950 * MS))
    found = diff.render(
        after, profile(MUTEX, unlock("main.hit", 9, 9 * S)), width=None, color=False
    )
    assert "main.hit" not in found
    assert "few releases" in found.lower()


def test_a_comparison_of_different_lengths_is_one_of_rates() -> None:
    """As the flame graph of both (web/flamegraph.js, baseScale)."""
    before = profile(BLOCK, LESS, duration_ns=10 * S)
    later = Sample(LESS.locations, (30, 2 * S))
    found = diff.render(profile(BLOCK, later, duration_ns=20 * S), before, width=None, color=False)
    assert "Change: 0 ns (+0.0%)" in found
    assert "Delay per second: 100 ms before, 100 ms after (+0.0%)" in found
    assert "Mean delay: 100 ms before, 66.7 ms after (-33.3%)" in found


def test_a_service_that_serves_more_has_its_means_beside_its_sums() -> None:
    before = profile(BLOCK, LESS)
    faster = Sample(LESS.locations, (400, 2 * S))
    found = diff.render(profile(BLOCK, faster), before, width=None, color=False)
    assert "100 ms to 5.00 ms" in found
    assert "Mean delay: 100 ms before, 5.00 ms after (-95.0%)" in found


def test_the_place_of_unknown_releases_is_not_a_place_in_a_program() -> None:
    assert Location(0x40, None, (Frame("[release not recorded]", "", 0),)) == UNKNOWN_RELEASE
    assert MUTEX.is_of
    assert MUTEX.is_of([unknown(1), unlock("main.hit", 1, 1)])
