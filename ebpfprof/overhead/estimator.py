"""Errors of what was recorded in windows, and scaled to all of the time."""

from __future__ import annotations


def student(freedom: float) -> float:
    """How much wider an interval of 95 % is if the variance has so many degrees of freedom.

    That is t / 1.96 of Student's distribution, within a hundredth; any number of 1 or more.
    """
    return 1 + 1.36 / freedom + 4.12 / freedom**3


def of_differences(windows: int) -> float:
    """The factor for a variance that the differences of `windows` (two at least) show.

    n windows have n - 1 differences. The variance of few differences is itself uncertain, so it is
    widened as Student's distribution does.
    """
    return windows / (windows - 1) * student(windows - 1) ** 2
