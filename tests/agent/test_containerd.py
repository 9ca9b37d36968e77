"""Pods of a real containerd, made as a kubelet makes them: the agent knows their names and wishes.

It takes Debian's containerd and runc, which `tests/setup.sh fresh` installs.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.containerd import Containerd
from tests.agent.running import RunningAgent, settings
from tests.kernel.kernel_state import has_probes
from tests.kernel.verbs import verb
from tests.tools.rooms import ROOT

pytestmark = pytest.mark.full  # for what it installs: it takes a few seconds

DEPLOYED = "till-7d4b9cf6c5-x2x4q"
APP = {"app.kubernetes.io/name": "app", "pod-template-hash": "7d4b9cf6c5"}
RULES = """
[[rules]]
action = "labelmap"
regex = "__meta_kubernetes_pod_(label_team|annotation_cost)"
replacement = "$1"
"""


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    """Have containerd; that of another package is as good."""
    if not all(map(shutil.which, ("containerd", "ctr", "runc"))):
        subprocess.run([ROOT / "tests/setup.sh", "fresh"], check=True)


@pytest.fixture
def containerd() -> Iterator[Containerd]:
    with Containerd() as made:
        yield made


def asking(folder: Path, containerd: Containerd, **more: object) -> str:
    """The settings of an agent that asks this containerd."""
    head, *tables = settings(folder, RULES, host_root="/proc/self/root", **more).partition("[ring]")
    return f'{head}[kubernetes]\ncri_socket = "{containerd.socket}"\n' + "".join(tables)


def run(containerd: Containerd, folder: Path, name: str, **about: dict[str, str]) -> int:
    """Start a pod with a container; the pid of its Go program."""
    pod = containerd.run_pod(name, "shops", **about)
    env = {"AGENT_TEST": str(folder)}
    return containerd.pid(containerd.run(pod, "main", ["/steps"], env))


def test_the_agent_knows_pods_by_the_runtimes_socket(
    containerd: Containerd, tmp_path: Path
) -> None:
    team = {"labels": {**APP, "team": "eu"}, "annotations": {"cost": "7"}}
    till = run(containerd, tmp_path, DEPLOYED, **team)
    private = run(containerd, tmp_path, "private-0", annotations={"ebpfprof/profile": "off"})
    with RunningAgent(tmp_path, asking(tmp_path, containerd)) as agent:
        (first, *_) = agent.await_windows(1, "till")
        assert first.pid == till
        identity = first.line["identity"]
        assert (identity["namespace"], identity["pod"]) == ("shops", DEPLOYED)
        assert (identity["container"], identity["labels"]) == (
            "main",
            {"annotation_cost": "7", "label_team": "eu"},
        )
        # A pod that begins later is asked for.
        late = run(containerd, tmp_path, "late-1", labels={"app.kubernetes.io/name": "app"})
        assert agent.await_windows(1, "late")[0].pid == late
        # The program, and the one that holds the pod's namespaces, which is one of Go's here.
        assert agent.metric("ebpfprof_agent_processes", state="opted-out") == 2
        asked = {"outcome": "answered", "source": "cri"}
        assert agent.metric("ebpfprof_pod_source_requests_total", **asked) >= 2
        assert agent.metric("ebpfprof_pod_source_pods", source="cri") == 3
        agent.reload(asking(tmp_path, containerd, kubernetes_labels=True))
        assert agent.await_windows(1, "app")
        # Settings of other things leave the answers as they are.
        assert agent.metric("ebpfprof_pod_source_requests_total", **asked) >= 2
        assert has_probes(late)
        assert not has_probes(private)
        assert {window.pid for window in agent.windows()} == {till, late}
        # A runtime that is away is reported, and nothing else ends.
        agent.reload(asking(tmp_path, containerd).replace("c.sock", "away.sock"))
        agent.await_said("away.sock gives no pods: No such file or directory.")
        written = len(agent.windows())
        agent.await_windows(written + 2)
        assert agent.end() == 0
    assert not has_probes(till)


def test_check_names_the_runtime_and_its_pods(containerd: Containerd, tmp_path: Path) -> None:
    till = run(containerd, tmp_path, DEPLOYED)
    private = run(containerd, tmp_path, "private-0", annotations={"ebpfprof/profile": "off"})
    config = tmp_path / "agent.toml"
    config.write_text(asking(tmp_path, containerd))
    asked = verb("agent", "--check", "--config", str(config))
    assert asked.code == 0
    runtime = f"The container runtime at /proc/self/root{containerd.socket} (containerd 1."
    assert any(
        line.startswith(runtime) and line.endswith(") knows 2 pods here.")
        for line in asked.stdout.splitlines()
    )
    rows = _rows(asked.stdout)
    assert rows[till].split()[1:] == ["steps", "till", "shops", "yes"]
    assert rows[private].endswith("no: its pod has the annotation ebpfprof/profile")
    # The same names by the runtime's files, but no annotations.
    config.write_text(settings(tmp_path, host_root=str(containerd.node)))
    rows = _rows(verb("agent", "--check", "--config", str(config)).stdout)
    assert rows[till].split()[1:] == ["steps", "till", "shops", "yes"]
    assert rows[private].split()[1:] == ["steps", "private", "shops", "yes"]


def _rows(text: str) -> dict[int, str]:
    lines = [line for line in text.splitlines() if line[:1].isdigit()]
    return {int(line.split()[0]): line for line in lines}
