"""The soak in short: a few cycles of the command that runs for an hour (docs/faults.md)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel.namespaces import NEEDS_NAMESPACES

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[2]
DEADLINE_S = 1200


def soaked(*arguments: str) -> str:
    """What it prints; fails if something was wrong."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
    return done.stdout


@pytest.mark.full
@NEEDS_NAMESPACES
def test_under_full_load_targets_stay_right_and_nothing_grows() -> None:
    assert ", wrong: 0" in soaked("--cycles", "4")


@NEEDS_NAMESPACES
@pytest.mark.full
def test_resources_of_the_server_follow_the_live_processes() -> None:
    came = re.search(r"processes that came and went: (\d+)", soaked("--churn", "--cycles", "6"))
    assert came is not None
    assert int(came[1]) >= 600
