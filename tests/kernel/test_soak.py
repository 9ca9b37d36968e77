"""The soak in short: what runs for an hour by a command (docs/faults.md) does a few cycles here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel.namespaces import NEEDS_NAMESPACES

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[2]
DEADLINE_S = 1200


@NEEDS_NAMESPACES
def test_under_all_that_there_is_targets_stay_right_and_nothing_grows() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--cycles", "6"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
    assert ", wrong: 0" in done.stdout
