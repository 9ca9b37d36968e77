"""A process that comes near its memory limit: what the agent keeps of it, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

from ebpfprof.export import pprof
from ebpfprof.observing.groups import memory_group
from ebpfprof.observing.memory_limits import NEAR, MemoryLimits
from ebpfprof.process.control_groups import ControlGroups, mounted_groups
from ebpfprof.process.proc_files import ProcFiles
from tests.agent.running import RunningAgent, settings
from tests.faults.environment import Environment, running
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.targets_run import Target

MEMORY_MIB = 64
HALF_A_MIB = 128  # objects


def fill(heap: Target, part: float) -> None:
    """Have a program allocate until its group needs this part of its limit."""
    group, *_ = ControlGroups(mounted_groups()).of(ProcFiles(heap.pid), "memory")
    while (memory_group(group).needed_bytes or 0) < part * (MEMORY_MIB << 20):
        heap.ask(f"leak {HALF_A_MIB}", "done")


def limited(*variables: str) -> Environment:
    return Environment(memory_mib=MEMORY_MIB, variables=("GOGC=off", *variables))


def test_only_a_process_near_the_limit_of_its_group_is_found() -> None:
    with (
        running(program("heap"), environment=limited()) as heap,
        Target.start(program("heap")) as other,
    ):
        limits = MemoryLimits()
        pids = (heap.pid, other.pid, 4_194_400)
        fill(heap, 0.5)
        assert limits.near(pids) == {}
        fill(heap, NEAR + 0.005)
        found = limits.near(pids)
        assert {*found} == {heap.pid}
        near = found[heap.pid]
        assert near.limit_bytes == MEMORY_MIB << 20
        assert NEAR <= near.needed_bytes / near.limit_bytes <= 1


def test_the_heap_and_the_goroutines_of_a_process_near_its_limit_are_kept(tmp_path: Path) -> None:
    text = settings(tmp_path, kinds=["block"])
    text = text.replace("enabled = false", f"path = {json.dumps(str(tmp_path / 'ring'))}")
    environment = limited(f"AGENT_TEST={tmp_path}", "OTEL_SERVICE_NAME=till")
    with (
        running(program("heap"), environment=environment) as heap,
        RunningAgent(tmp_path, text) as agent,
    ):
        agent.await_windows(2, "till")
        assert agent.findings() == []
        fill(heap, NEAR + 0.005)
        agent.wait_until(lambda: bool(agent.findings()), "no last words")
        agent.await_windows(len(agent.windows()) + 2)
        assert agent.end() == 0
        assert not has_probes(heap.pid)
        (found,) = agent.findings()
        (finding,) = found.line["findings"]
        assert (found.service, found.pid, finding["kind"]) == ("till", heap.pid, "memory_limit")
        assert finding["title"].startswith("Last words: the container needs 6")
        assert finding["title"].endswith(" of 64.0 MiB; heap and goroutine profiles were kept.")
        assert f"till (pid {heap.pid}): Last words: " in agent.said
        (window,) = (each for each in agent.windows() if "heap" in each.profiles)
        assert {*window.profiles} == {"heap", "goroutine"}
        data = (tmp_path / "out" / window.profiles["heap"]).read_bytes()
        profile = pprof.decode(data, kind="heap")
        leaked = sum(
            sample.values[3]
            for sample in profile.samples
            if any(f.function == "main.leak" for at in sample.locations for f in at.frames)
        )
        assert leaked > MEMORY_MIB << 19
        listed = verb("history", "--path", str(tmp_path / "ring"))
        assert f"till ({heap.pid}): Last words: " in listed.stdout
        shown = verb("history", "--path", str(tmp_path / "ring"), "--name", "till")
        assert "main.leak" in shown.stdout
