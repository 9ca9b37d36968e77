"""What the agent takes beside many processes, of which some come and go.

    python -m tests.bench.bench_agent [--processes 200] [--churn 50] [--seconds 60]
                                      [--window 10s] [--node-overhead 100]

As root. It starts so many Go programs that wait a little (tests/targets/crowd), and so many more
each second that end at once; records them with an agent; and prints, from the agent's own metrics,
its CPU time, its memory, and what became of the processes. Fails if an agent that ends reports a
loss, leaves a probe, or has recorded a process that came and went.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.agent.running import RunningAgent, settings
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.targets_run import Target

_INTERVAL_S = 10.0


def read(agent: RunningAgent) -> dict[str, float]:
    """All metrics by name and labels."""
    text = agent.get("/metrics").body.decode()
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def churned(per_second: int, until_s: float, env: dict[str, str]) -> int:
    """Start so many programs a second that end at once; returns how many."""
    brief, begun_s, count = str(program("brief")), time.monotonic(), 0
    running: list[subprocess.Popen[bytes]] = []
    while (now_s := time.monotonic()) < until_s:
        while count < (now_s - begun_s) * per_second:
            running.append(
                subprocess.Popen([brief, "exit", "0"], env=env, stdout=subprocess.DEVNULL)
            )
            count += 1
        running = [each for each in running if each.poll() is None]
        time.sleep(0.01)
    for each in running:
        each.wait()
    return count


def show(elapsed_s: float, before: dict[str, float], now: dict[str, float]) -> None:
    def of(name: str, **labels: str) -> float:
        inner = ",".join(f'{key}="{value}"' for key, value in labels.items())
        return now.get(f"{name}{{{inner}}}" if inner else name, 0.0)

    cpu = of("ebpfprof_agent_cpu_seconds_total") - before["ebpfprof_agent_cpu_seconds_total"]
    states = {
        match[1]: value
        for name, value in now.items()
        if value and (match := re.fullmatch(r'ebpfprof_agent_processes\{state="(.*)"\}', name))
    }
    memory = of("ebpfprof_agent_memory_bytes", of="agent") / 2**20
    print(
        f"{elapsed_s:5.0f} s  agent {100 * cpu / elapsed_s:5.1f} % of a processor, "
        f"{memory:4.0f} MiB  "
        f"windows {of('ebpfprof_agent_windows_total'):.0f}  "
        + ", ".join(f"{name} {value:.0f}" for name, value in sorted(states.items())),
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=200)
    parser.add_argument("--churn", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--window", default="10s")
    parser.add_argument("--node-overhead", type=float, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as held:
        folder = Path(name)
        env = {"AGENT_TEST": str(folder)}
        targets = [
            held.enter_context(Target.start(program("crowd"), "-goroutines", "2", env=env))
            for _ in range(given.processes)
        ]
        text = settings(
            folder,
            window=given.window,
            max_overhead=1,
            max_node_overhead=given.node_overhead,
            max_processes=max(1, given.processes + 10),
            min_age="3s",
        )
        agent = held.enter_context(RunningAgent(folder, text))
        agent.await_said("Recording ")
        begun_s, before = time.monotonic(), read(agent)
        until_s, came = begun_s + given.seconds, 0
        while (now_s := time.monotonic()) < until_s:
            came += churned(given.churn, min(until_s, now_s + _INTERVAL_S), env)
            show(time.monotonic() - begun_s, before, read(agent))
        lost = {
            key: value
            for key, value in read(agent).items()
            if key.startswith("ebpfprof_agent_losses_total") and value
        }
        began_s = time.monotonic()
        status = agent.end()
        print(f"{came} came and went; it ended with status {status} in "
              f"{time.monotonic() - began_s:.1f} s; losses: {json.dumps(lost)}")  # fmt: skip
        print(agent.said)
        strangers = {each.pid for each in agent.windows()} - {each.pid for each in targets}
        left = [each.pid for each in targets if has_probes(each.pid)]
        for each in targets:
            each.kill()
        if status or lost or strangers or left:
            print(f"FAILED: status {status}, strangers {strangers}, probes left in {left}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
