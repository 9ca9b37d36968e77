"""What the comments of an estimated profile of waits say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.profilers.waits.coverage import Deviation, WaitsCoverage

S = 1_000_000_000
ONLY_EIGHTH = WaitsCoverage(10 * S, 0, 10 * S, 0, 0)
WINDOWS = WaitsCoverage(100 * S, 1 * S, 0, 4 * S, 50)


def of(deviation: Deviation, *, windows: int = 50, **values: float) -> WaitsCoverage:
    return WaitsCoverage(
        100 * S, S, 0, 4 * S, windows, {"block": deviation, "mutex": deviation}, **values
    )


@pytest.mark.parametrize(
    ("coverage", "how"),
    [
        (ONLY_EIGHTH, "one wait in eight"),
        (WaitsCoverage(10 * S, 2 * S, 8 * S, 0, 0), "one wait in eight"),
        (WINDOWS, "one wait in eight, 5 % of the time"),
        (WaitsCoverage(100 * S, 0, 60 * S, 5 * S, 7), "one wait in eight, 65 % of the time"),
        (WaitsCoverage(100 * S, 4 * S, 0, 0, 0), "one wait in eight, 4 % of the time"),
    ],
)
def test_it_says_which_waits_were_recorded(coverage: WaitsCoverage, how: str) -> None:
    assert coverage.how == how
    assert str(coverage) == f"sampled {how}, and scaled"


def test_it_says_what_became_of_the_sampling_that_was_asked_for() -> None:
    assert WINDOWS.sampling("every event") == "every event at first, then one wait in eight"
    assert ONLY_EIGHTH.sampling("every event") == "one wait in eight"
    releases = "releases behind one wait in eight"
    assert ONLY_EIGHTH.sampling(releases) == releases


def test_the_share_is_that_of_waits_not_of_the_time() -> None:
    assert ONLY_EIGHTH.share == 1 / 8
    assert ONLY_EIGHTH.recorded_share == 1
    assert WINDOWS.share == pytest.approx((1 + 4 / 8) / 100)
    assert WINDOWS.recorded_share == 0.05
    assert WaitsCoverage(10 * S, 10 * S, 0, 0, 0).share == 1


def test_a_recording_without_a_length_lacks_nothing() -> None:
    none = WaitsCoverage(0, 0, 0, 0, 0)
    assert (none.share, none.recorded_share, none.is_scaled) == (1, 1, False)


def test_parts_that_were_measured_a_bit_too_long_are_no_more_than_all() -> None:
    long = WaitsCoverage(10 * S, 11 * S, S, S, 1)
    assert (long.share, long.recorded_share) == (1, 1)


def test_a_recording_of_every_wait_has_no_error() -> None:
    exact = WaitsCoverage(10 * S, 10 * S, 0, 0, 0, {"block": Deviation(10, 10, 1, 1)})
    assert not exact.is_scaled
    assert exact.error("block") == ""


def test_the_error_is_a_part_of_the_totals() -> None:
    coverage = of(Deviation(200, 1000, 30**2, 70**2))
    assert coverage.is_scaled
    assert coverage.error("block") == ("+-15 % on counts, +-7 % on delays (one standard error)")
    assert coverage.error("wakers") == ""


@pytest.mark.parametrize(
    ("variances", "words"),
    [
        ((30**2, 501**2), "+-15 % on counts, above 50 % on delays"),
        ((101**2, 500**2), "above 50 % on counts, +-50 % on delays"),
    ],
)
def test_an_error_that_tables_don_t_show_is_no_number(
    variances: tuple[int, int], words: str
) -> None:
    found = of(Deviation(200, 1000, *variances)).error("block")
    assert found == f"{words} (one standard error)"


def test_of_a_single_window_no_error_is_known() -> None:
    coverage = of(Deviation(200, 1000, 30**2, 70**2), windows=1)
    assert not coverage.knows_errors
    assert coverage.error("block") == "standard error not known, from a single window"
    assert coverage.error("wakers") == ""


def test_without_a_window_no_error_is_known() -> None:
    """The budget ran out at first, and allowed no window until the end."""
    coverage = of(Deviation(200, 1000, 30**2, 70**2), windows=0)
    assert not coverage.knows_errors
    assert coverage.error("block") == "standard error not known, without a window"
    later = WaitsCoverage(10 * S, S, S, 0, 0, coverage.deviations)
    assert later.knows_errors
    assert later.error("block").startswith("+-")


def test_an_error_of_nothing_is_a_number() -> None:
    assert of(Deviation()).error("block") == "+-0 % on counts, +-0 % on delays (one standard error)"


def test_waiting_without_a_known_release_is_missing_in_the_mutex_profile() -> None:
    deviation = Deviation(10, 100 * S)
    assert of(deviation).missing("mutex") == []
    assert of(deviation, uncharged_ns=10.0 * S).missing("block") == []
    assert of(deviation, uncharged_ns=10.0 * S).missing("mutex") == [
        "not recorded: the releases of 10.0 s of waiting"
    ]
    assert of(deviation, uncharged_ns=40.0 * S).missing("mutex") == [
        "few releases of locks were recorded: those of 40 % of the delay are not known"
    ]
    assert of(Deviation(), uncharged_ns=1.0).missing("mutex") == [
        "few releases of locks were recorded: those of all of the delay are not known"
    ]


def test_an_interval_is_the_difference_of_two_recordings() -> None:
    first = of(Deviation(10, 100, 4, 9), uncharged_ns=5.0)
    second = WaitsCoverage(
        300 * S, 2 * S, 3 * S, 9 * S, 80, {"block": Deviation(30, 500, 5, 29)}, 6.0
    )
    assert second - first == WaitsCoverage(
        200 * S, S, 3 * S, 5 * S, 30, {"block": Deviation(20, 400, 1, 20)}, 1.0
    )


def test_a_kind_that_is_new_in_an_interval_counts_from_its_begin() -> None:
    first, second = WINDOWS, of(Deviation(30, 500, 5, 29))
    assert (second - first).deviations["block"] == Deviation(30, 500, 5, 29)


def test_a_variance_that_fell_is_none_in_between() -> None:
    """Estimates become better: the error of the difference is not that of the sums."""
    assert Deviation(5, 5, 1, 2) - Deviation(3, 3, 9, 9) == Deviation(2, 2, 0, 0)


def test_recordings_of_several_processes_add_up() -> None:
    one = WaitsCoverage(10 * S, 1, 2, 3, 4, {"block": Deviation(1, 2, 3, 4)}, 5.0)
    other = WaitsCoverage(
        20 * S, 10, 20, 30, 40, {"block": Deviation(1, 1, 1, 1), "mutex": Deviation(7)}, 50.0
    )
    assert one + other == WaitsCoverage(
        30 * S, 11, 22, 33, 44, {"block": Deviation(2, 3, 4, 5), "mutex": Deviation(7)}, 55.0
    )


numbers = st.integers(0, 10**15)
deviations = st.dictionaries(
    st.sampled_from(("block", "mutex", "wakers")),
    st.builds(Deviation, numbers, numbers, numbers, numbers),
)
coverages = st.builds(
    WaitsCoverage, numbers, numbers, numbers, numbers, numbers, deviations, numbers
)


@given(coverages, coverages)
def test_what_was_added_is_the_difference(one: WaitsCoverage, other: WaitsCoverage) -> None:
    both = one + other
    difference = both - one
    for kind in other.deviations:
        assert difference.deviations[kind] == other.deviations[kind]
    assert difference.length_ns == other.length_ns
    assert difference.windows == other.windows
    assert 0 <= both.share <= both.recorded_share <= 1
