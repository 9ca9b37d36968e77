"""The saved programs are those that the pinned toolchain makes of the targets."""

from __future__ import annotations

import pytest

from tests.programs.record import content
from tests.programs.saved import NEWEST, SAVED, saved

pytestmark = pytest.mark.machine


@pytest.mark.parametrize(("name", "mode"), SAVED)
def test_saved_programs_are_up_to_date(name: str, mode: str) -> None:
    """If a target or the newest Go changed on purpose: python -m tests.programs.record."""
    is_up_to_date = content(name, mode) == saved()[name, mode]
    assert is_up_to_date, f"{name} of Go {NEWEST} differs"
