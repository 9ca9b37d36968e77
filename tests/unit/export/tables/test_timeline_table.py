"""The table after a trace."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.export.tables.timeline import render
from tests.unit.timeline.test_critical import timeline


def test_what_is_estimated_says_so() -> None:
    found = timeline()
    text = render(found, width=80, color=False)
    assert text.splitlines()[-1].startswith("Runnable is an estimate")
    assert max(map(len, text.splitlines())) <= 80
    exact = render(replace(found, has_exact_starts=True), width=80, color=False)
    assert exact + text.splitlines()[-1] + "\n" == text
