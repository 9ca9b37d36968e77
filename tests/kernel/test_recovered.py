"""Waits in deferred functions of a function that has recovered a panic.

Before Go 1.21, runtime.recovery leaves a wrong frame pointer to that function.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.builds import versions
from tests.kernel.programs import program
from tests.kernel.run_command import BLOCK, COMMAND, waits
from tests.recorder import only_profile, run

ROUNDS = 5


@pytest.mark.parametrize("minor", versions("1.19", "1.21", "1.27"))
def test_callers_that_a_recovered_panic_hides_are_reported(minor: str, tmp_path: Path) -> None:
    target = str(program("recovered", minor))
    finished = run(*BLOCK, "--", target, folder=tmp_path, command=COMMAND)
    assert finished.code == 0, finished.stderr
    profile = only_profile(tmp_path)
    found = waits(profile)
    assert found["main.called"] == found["main.outermost"] == ROUNDS
    reported = [
        re.match(
            r"incomplete: (\d+) events that may lack callers: they follow a recovered", comment
        )
        for comment in profile.comments
    ]
    doubtful = sum(int(match[1]) for match in reported if match)
    if minor == "1.19":
        # Not known which of them lack callers: those in the outermost function do not.
        assert doubtful == 2 * ROUNDS
        assert found.get("main.call", 0) == 0
    else:
        assert not [comment for comment in profile.comments if comment.startswith("incomplete")]
        assert found["main.call"] == ROUNDS
