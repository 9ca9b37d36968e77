"""Workers that run tests side by side each collect them, and must find the same ones."""

import os
import subprocess
import sys

import pytest


@pytest.mark.full
def test_tests_are_collected_in_the_same_order_each_time(request: pytest.FixtureRequest) -> None:
    mine = [item.nodeid for item in request.session.items]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    marker = ["-m", request.config.getoption("markexpr")]
    done = subprocess.run(
        [*command, *marker, *request.config.args],
        cwd=request.config.invocation_params.dir,
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = set(mine)
    assert [line for line in done.stdout.splitlines() if line in wanted] == mine
