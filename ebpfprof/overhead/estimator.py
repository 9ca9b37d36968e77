"""Errors of what was recorded in windows, and scaled to all of the time."""

from __future__ import annotations

from typing import Final

_OF_TWO: Final = 6.5  # 12.7 standard errors in place of 1.96


def of_differences(windows: int) -> float:
    """The factor for a variance that the differences of `windows` (two at least) show.

    n windows have n - 1 differences. The variance of few differences is itself uncertain: we widen
    it as Student's distribution does for intervals of 95 %, within a tenth.
    """
    student = (windows + 1) / (windows - 1) if windows > 2 else _OF_TWO
    return windows / (windows - 1) * student**2
