"""An agent that begins beside many processes."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agent.running import RunningAgent, settings
from tests.kernel.programs import program
from tests.targets_run import Target

COUNT = 16
"""More than begin at once."""


@pytest.mark.full
def test_all_are_recorded_before_the_first_windows_end(tmp_path: Path) -> None:
    """A few begin, to know what that costs; those that are recorded continue when others begin."""
    env = {"AGENT_TEST": str(tmp_path)}
    with ExitStack() as held:
        targets = [
            held.enter_context(Target.start(program("sleeper"), env=env)) for _ in range(COUNT)
        ]
        agent = held.enter_context(RunningAgent(tmp_path, settings(tmp_path, window="1h")))
        recorded = f'ebpfprof_agent_processes{{state="recorded"}} {COUNT}.0'
        agent.wait_until(lambda: recorded in metrics(agent), "not all are recorded")
        assert "ebpfprof_agent_rounds_total 0.0" in metrics(agent)
        assert agent.end() == 0
        windows = agent.windows()
        assert sorted(window.pid for window in windows) == sorted(target.pid for target in targets)


def metrics(agent: RunningAgent) -> list[str]:
    if "Metrics are at" not in agent.said:
        return []
    return agent.get("/metrics").body.decode().splitlines()
