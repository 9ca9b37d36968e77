"""Errors of what was recorded in windows, and scaled to all of the time."""

from __future__ import annotations


def of_differences(windows: int) -> float:
    """The factor for a variance that the differences of `windows` (two at least) show.

    n windows have n - 1 differences. The variance of few differences is itself uncertain: we widen
    it as Student's distribution does for intervals of 95 %, within a tenth.
    """
    return windows / (windows - 1) * ((windows + 1) / (windows - 1)) ** 2
