"""What the agent takes beside many processes, of which some come and go.

    python -m tests.bench.bench_agent [--processes 1,10,50,200,1000] [--churn 50] [--seconds 120]
                                      [--window 60s] [--node-overhead 100] [--memory 512MiB]
                                      [--at-once 128] [--explain 1m]

As root. For each number it starts that many Go programs (tests/targets/crowd; one in ten waits for
10 ms each time, the others for 200 ms; a quarter are builds of ten other versions of Go), and all
the time that many more each second that end at once. An agent that may record none of them shows
what it takes to watch the machine; another one records them all. The table has, from the agent's
own metrics, CPU time in percent of one processor once all are recorded, the most memory (Pss, with
all its processes) that any sample found, and the time until all were recorded and until the agent
had ended. If all of them at once don't fit into --memory, or exceed --at-once, they have turns:
then all were recorded once each has had one. With --explain, a third agent also explains each
process that often: the table has its CPU time, and what an explanation takes.

Fails if an agent reports a loss, takes a tenth more than --memory, leaves a probe, has recorded a
process that came and went, or has not recorded all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.agent.running import RunningAgent, settings
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.targets_run import Target
from tests.toolchains import MINORS

_BUSY_EVERY: Final = 10
_BUSY, _QUIET = "10ms", "200ms"
_OTHER_EVERY: Final = 4
_OTHERS: Final = MINORS[:-1]
_STEP_S: Final = 2.0
_APART_S: Final = 15.0  # between samples of memory, as a scraper's: each reads every process
_MOST_S: Final = 1200.0  # until all are recorded
_FOR_A_MOMENT: Final = 1.1  # times --memory: probes of many windows are in at some times
_CPU: Final = "ebpfprof_agent_cpu_seconds_total"
_MEMORY: Final = 'ebpfprof_agent_memory_bytes{of="agent"}'
_LIMIT: Final = 'ebpfprof_agent_memory_bytes{of="limit"}'
_RECORDED: Final = 'ebpfprof_agent_processes{state="recorded"}'
_EXPLANATIONS: Final = "ebpfprof_agent_explanations_total"
_WINDOWS: Final = "ebpfprof_agent_windows_total"

Metrics = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Found:
    """What one agent took; CPU time in processors."""

    cpu: float
    memory_mib: float
    all_after_s: float
    ended_in_s: float
    came: int
    explained: float
    """Explanations a second."""
    problems: list[str]


def read(agent: RunningAgent) -> Metrics:
    """All metrics by name and labels."""
    text = agent.get("/metrics").body.decode()
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


class Peak:
    """The most memory of an agent that a sample found."""

    def __init__(self, agent: RunningAgent) -> None:
        self.bytes = 0.0
        self._agent = agent

    def sample(self) -> Metrics:
        """Look now; returns all metrics."""
        now = read(self._agent)
        self.bytes = max(self.bytes, now[_MEMORY])
        return now


class Churn:
    """Programs that end at once, that many a second."""

    def __init__(self, per_second: int, env: dict[str, str]) -> None:
        self.came = 0
        self._brief, self._env = str(program("brief")), env
        self._per_second, self._due_s = per_second, time.monotonic()
        self._running: list[subprocess.Popen[bytes]] = []

    def go_on(self, seconds: float) -> None:
        """Start them for so long."""
        until_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < until_s:
            while self._per_second and self._due_s < now_s:
                self._due_s += 1 / self._per_second
                self.came += 1
                command = [self._brief, "exit", "0"]
                self._running.append(
                    subprocess.Popen(command, env=self._env, stdout=subprocess.DEVNULL)
                )
            self._running = [each for each in self._running if each.poll() is None]
            time.sleep(0.01)  # until the next is due


@contextmanager
def crowd(count: int, env: dict[str, str]) -> Iterator[list[Target]]:
    """That many processes, which end with the block."""
    with ExitStack() as held:
        targets = []
        for number in range(count):
            each = _QUIET if number % _BUSY_EVERY else _BUSY
            arguments = ("-goroutines=2", f"-each={each}")
            is_other = number % _OTHER_EVERY == 1
            minor = _OTHERS[number // _OTHER_EVERY % len(_OTHERS)] if is_other else MINORS[-1]
            built = program("crowd", minor)
            targets.append(held.enter_context(Target.start(built, *arguments, env=env)))
        yield targets
        for target in targets:
            target.kill()


def measured(
    given: argparse.Namespace, folder: Path, targets: list[Target], most: int, explain: str = ""
) -> Found:
    """Run an agent that may record all of the processes, or none: those that know the folder.

    It explains each so often.
    """
    env = {"AGENT_TEST": str(folder)}
    own = {target.pid for target in targets}
    text = settings(
        folder,
        window=given.window,
        max_memory=given.memory,
        max_overhead=1,
        max_node_overhead=given.node_overhead,
        max_processes=given.at_once or max(1, len(targets) + 10),
        min_age="3s",
        explain=explain or 0,
    )
    churn = Churn(given.churn, env)
    with RunningAgent(folder, text) as agent:
        agent.await_said("Recording ")
        begun_s, memory = time.monotonic(), Peak(agent)
        while memory.sample()[_RECORDED] < most and time.monotonic() < begun_s + _MOST_S:
            churn.go_on(_STEP_S)
            if own <= {window.pid for window in agent.windows()}:
                break
        all_after_s, before, since_s = time.monotonic() - begun_s, read(agent), time.monotonic()
        until_s = since_s + (given.seconds if most else min(60, given.seconds / 2))
        while (left_s := until_s - time.monotonic()) > 0:
            churn.go_on(min(_APART_S, left_s))
            memory.sample()
        now = read(agent)
        passed_s = time.monotonic() - since_s
        cpu = (now[_CPU] - before[_CPU]) / passed_s
        explained = (now[_EXPLANATIONS] - before[_EXPLANATIONS]) / passed_s
        lost = {
            name: value
            for name, value in now.items()
            if name.startswith("ebpfprof_agent_losses_total") and value
        }
        ended_s = time.monotonic()
        status = agent.end()
        ended_in_s = time.monotonic() - ended_s
        seen = {each.pid for each in agent.windows()}
        limit = now[_LIMIT]
        left = [each.pid for each in targets if has_probes(each.pid)]
        problems = [
            f"{name}: {value}"
            for name, value in (
                ("status", status),
                ("losses", json.dumps(lost) if lost else ""),
                ("recorded, but came and went", seen - own),
                ("bytes above --memory", max(0, memory.bytes - _FOR_A_MOMENT * limit)),
                ("probes left in", left),
                ("not recorded", own - seen if most else 0),
                ("no windows", bool(most) and not now[_WINDOWS]),
                ("nothing explained", bool(explain) and not explained),
            )
            if value
        ]
        return Found(
            cpu, memory.bytes / 2**20, all_after_s, ended_in_s, churn.came, explained, problems
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", default="1,10,50,200,1000")
    parser.add_argument("--churn", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--window", default="60s")
    parser.add_argument("--node-overhead", type=float, default=100)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--at-once", type=int, help="how many are recorded at once; all by default")
    parser.add_argument("--explain", default="", metavar="TIME")
    given = parser.parse_args()
    print("processes  watching  recording     each   memory  all after  ended in  came and went")
    has_failed = False
    for count in map(int, given.processes.split(",")):
        with (
            tempfile.TemporaryDirectory() as none,
            tempfile.TemporaryDirectory() as name,
            crowd(count, {"AGENT_TEST": name}) as targets,
        ):
            watching = measured(given, Path(none), targets, 0)
            found = measured(given, Path(name), targets, count)
        print(
            f"{count:9}  {100 * watching.cpu:6.2f} %  {100 * found.cpu:7.2f} %  "
            f"{100 * found.cpu / count:5.3f} %  {found.memory_mib:4.0f} MiB  "
            f"{found.all_after_s:7.0f} s  {found.ended_in_s:6.1f} s  {found.came:13}",
            flush=True,
        )
        problems = [*watching.problems, *found.problems]
        if given.explain:
            with (
                tempfile.TemporaryDirectory() as name,
                crowd(count, {"AGENT_TEST": name}) as targets,
            ):
                explaining = measured(given, Path(name), targets, count, given.explain)
            more = explaining.cpu - found.cpu
            each_s = more / explaining.explained if explaining.explained else 0.0
            print(
                f"{count:9}  explaining {100 * explaining.cpu:6.2f} %, {explaining.memory_mib:.0f} "
                f"MiB: {60 * explaining.explained:.1f} explanations a minute, {each_s:.2f} s each",
                flush=True,
            )
            problems += explaining.problems
        for problem in problems:
            print(f"FAILED: {problem}")
            has_failed = True
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
