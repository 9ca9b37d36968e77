"""Leaks as text."""

from __future__ import annotations

import pytest

from ebpfprof.export.tables.leaks import head
from ebpfprof.profile.goroutines import GoroutineGroup
from ebpfprof.profile.leaks import Suspects
from tests.unit.findings.evidence import SEND, goroutine


@pytest.mark.parametrize(
    ("per_minute", "words"), [(0.5, "+0.5 a minute, 3 now"), (2463.2, "+2,460 a minute, 3 now")]
)
def test_growth_has_three_digits_and_no_exponent(per_minute: float, words: str) -> None:
    members = tuple(goroutine(goid, "chan send", *SEND, "main.search:18") for goid in (1, 2, 3))
    suspects = Suspects(GoroutineGroup(members), True, per_minute, 0)
    assert head(suspects, 3).startswith(words)
