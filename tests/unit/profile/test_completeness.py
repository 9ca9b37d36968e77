"""From when on losses are a warning: one threshold, for the terminal and the page."""

import pytest

from ebpfprof.profile.completeness import ALARMING_SHARE, Completeness


@pytest.mark.parametrize(
    ("lost", "recorded", "share", "is_alarming"),
    [
        (0, 0, 0.0, False),
        (0, 58_000, 0.0, False),
        (1, 58_000, 1 / 58_001, False),
        (1, 100, 1 / 101, False),
        (1, 99, 0.01, True),
        (12, 88, 0.12, True),
        (5, 0, 1.0, True),
    ],
)
def test_losses_are_reported_in_proportion(
    lost: int, recorded: float, share: float, is_alarming: bool
) -> None:
    found = Completeness(lost, recorded)
    assert found.lost_share == pytest.approx(share)
    assert found.is_alarming == is_alarming


def test_without_a_known_loss_a_profile_is_complete() -> None:
    assert Completeness() == Completeness(0, 0.0)
    assert Completeness(recorded=7).lost_share == 0


def test_the_threshold_is_one_percent() -> None:
    assert ALARMING_SHARE == 0.01
