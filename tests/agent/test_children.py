"""The child processes of an agent: small, without rights that the agent has given up, and gone."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from ebpfprof.kernel import uprobe_helper
from ebpfprof.system import file_worker, lean_start
from tests.agent.running import RunningAgent, settings
from tests.agent.test_agent import started
from tests.builds import in_full
from tests.kernel.kernel_state import descendants
from tests.kernel.unharmed import await_ended


def name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().rstrip()


def rights(pid: int) -> list[str]:
    """Its capabilities, in force and to be had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return re.findall(r"^(Cap(?:Prm|Eff|Bnd|Amb):\t\w+|NoNewPrivs:\t\d)$", status, re.MULTILINE)


@pytest.mark.parametrize("how", [*in_full(signal.SIGTERM), signal.SIGKILL])
def test_children_are_lean_and_end_with_the_agent(how: signal.Signals, tmp_path: Path) -> None:
    with started(tmp_path), RunningAgent(tmp_path, settings(tmp_path)) as agent:
        agent.await_windows(1, "steps")
        family = {pid: name(pid) for pid in descendants(agent.pid)}
        (starter,) = (pid for pid, each in family.items() if each == lean_start.NAME)
        own = [pid for pid in descendants(starter) if family[pid] != "ebpfprof-holder"]
        assert {family[pid] for pid in own} == {uprobe_helper.NAME, file_worker.NAME}
        assert set(family) == {starter, *descendants(starter)}
        (helper,) = (pid for pid in own if family[pid] == uprobe_helper.NAME)
        for pid in (starter, helper):  # it has hardly imported anything
            assert "numpy" not in Path(f"/proc/{pid}/maps").read_text()
        assert "numpy" in Path(f"/proc/{agent.pid}/maps").read_text()
        assert {pid: rights(pid) for pid in own} == dict.fromkeys(own, rights(agent.pid))
        assert rights(starter) == rights(agent.pid)
        agent.send(how)
        for pid in family:
            await_ended(pid)
        agent.finish()
