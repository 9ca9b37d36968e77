"""Targets that check their own results, while all that there is of the profiler works on them.

    sudo .venv/bin/python -m tests.soak --minutes 60

In each cycle, while a `serve` that never ends follows all Go processes and its clients ask,
`attach`, `run` and `top` come and go, and so do other processes. After each cycle every result of
the targets must be right, and all probes gone; at the end the server must hold no more files,
threads, BPF objects and memory than after its first cycles. It runs in a pid namespace, so that it
sees no others. Prints a line a cycle, and the figures at the end. The exit status is 0 if all was
well.

With --churn it is another load: a `serve --all-go --continuous`, while in each cycle a hundred
processes of one program come and go, each for a third of a second.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT
from statistics import median_low
from time import monotonic, sleep
from typing import Final

from ebpfprof.profile.model import Kind
from tests.kernel.kernel_state import await_gone, bpf_objects, open_files
from tests.kernel.programs import program
from tests.kernel.unharmed import ALL_PROFILES, await_true, check, checker, whole_profiles
from tests.server.serving import Server, await_probes
from tests.targets_run import Target

ROOT: Final = Path(__file__).parents[1]
# Cycles in which a server still grows: modules, caches, heaps, threads for clients.
WARM_UP: Final = 3
LEAST_CYCLES: Final = WARM_UP + 3
MAX_GROWTH_KIB: Final = 8 << 10
CLIENTS: Final = 5
# One heap: else memory depends on which thread happens to use which.
ONE_HEAP: Final = {"MALLOC_ARENA_MAX": "1"}
CHURN: Final = 100  # processes in a cycle
CHURN_A_SECOND: Final = 50
CHURN_LIFE_MS: Final = 300
LOOKS: Final = 10
LOOK_S: Final = 0.05
_ISOLATING = ("/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
_SEED = 6


@dataclass(frozen=True)
class Held:
    """What the server holds after a cycle, without a request."""

    resident_kib: int
    files: int
    threads: int
    objects: int


@dataclass(frozen=True)
class Outcome:
    """What came of it: seconds, what was `done`, in words, and what was held, by cycle."""

    length_s: float
    done: str
    held: Sequence[Held]

    @property
    def growth_kib(self) -> int:
        """How much more memory there is from third to third, of the two steps the smaller.

        What leaks grows in both. The first time that more clients than before have their answers
        made at the same moment, it grows once, by 5 to 10 MiB, whenever that is.
        """
        after = [each.resident_kib for each in self.held[WARM_UP:]]
        third = len(after) // 3
        first, second, last = (
            median_low(after[len(after) - n * third :][:third]) for n in (3, 2, 1)
        )
        return min(second - first, last - second)

    def faults(self) -> list[str]:
        """What grew."""
        found = []
        after = self.held[WARM_UP:]
        if self.growth_kib > MAX_GROWTH_KIB:
            found.append(f"memory grew by {self.growth_kib} KiB")
        for name in ("files", "objects"):
            values = [getattr(each, name) for each in after]
            if values[-1] > values[0]:
                found.append(f"{name}: {values}")
        threads = [each.threads for each in after]
        if max(threads) > self.held[0].threads + CLIENTS:
            found.append(f"threads: {threads}")
        return found


def soak(goes_on: Callable[[int], bool]) -> Outcome:
    """Run cycles while `goes_on`, asked with their number so far, says so. Raises what is wrong."""
    began_s, rounds = monotonic(), 0
    held: list[Held] = []
    chance = random.Random(_SEED)
    with ExitStack() as stack:
        targets = [
            stack.enter_context(checker("procs", "spread", "spawn")),
            stack.enter_context(checker("procs", "spread", minor="1.19")),
        ]
        serving = ("--all-go", "--runtime-locks", "--retention", "10")
        server = stack.enter_context(Server(*serving, env=ONE_HEAP))
        assert server.ready
        pids = {target.pid for target in targets}
        await_true(lambda: pids <= set(followed(server)), "a target is not followed")
        while goes_on(len(held)):
            with tempfile.TemporaryDirectory() as folder:
                rounds = cycle(server, targets, Path(folder), chance)
            held.append(now_held(server, held[WARM_UP - 1] if len(held) >= WARM_UP else None))
            print(f"cycle {len(held)}, {monotonic() - began_s:.0f} s:", held[-1], flush=True)
        end(server)
    done = f"rounds that the targets checked: {rounds}, wrong: 0"
    return Outcome(monotonic() - began_s, done, held)


def churn(goes_on: Callable[[int], bool]) -> Outcome:
    """The same while processes come and go: what the server holds follows what is alive."""
    began_s, came = monotonic(), 0
    held: list[Held] = []
    with ExitStack() as stack:
        steady = stack.enter_context(Target.start(program("ticker")))
        serving = ("--all-go", "--continuous", "--retention", "10")
        server = stack.enter_context(Server(*serving))
        assert server.ready
        await_true(lambda: followed(server) == [steady.pid], "the target is not followed")
        while goes_on(len(held)):
            came += come_and_go(server)
            await_true(lambda: followed(server) == [steady.pid], "what ended is followed still")
            held.append(now_held(server, held[WARM_UP - 1] if len(held) >= WARM_UP else None))
            print(f"cycle {len(held)}, {monotonic() - began_s:.0f} s:", held[-1], flush=True)
        end(server)
    return Outcome(monotonic() - began_s, f"processes that came and went: {came}", held)


def come_and_go(server: Server) -> int:
    """Have processes come and go, and ask the server meanwhile; how many came."""
    rate = str(CHURN_A_SECOND), str(CHURN_LIFE_MS)
    with Target.start(program("churn"), *rate) as starter:
        while True:
            ended = int(starter.ask("count", "started").split()[3])
            if ended >= CHURN:
                return ended
            for pid in followed(server)[:1]:
                server.get(f"/api/targets/{pid}/profile?kind=block")
            server.get("/metrics").body.index(b"ebpfprof_")


def end(server: Server) -> None:
    """Have the server end, as it should."""
    objects = bpf_objects(server.pid)
    server.send(SIGINT)
    assert server.finish() == 0, server.said
    assert "Traceback" not in server.said
    await_gone(objects)


def cycle(server: Server, targets: Sequence[Target], folder: Path, chance: random.Random) -> int:
    """All at once, and then nothing; returns how many rounds the targets have checked so far."""
    with Target.start(program("ticker", chance.choice(("1.19", "1.23", "1.27")))) as brief:
        await_true(lambda: brief.pid in followed(server), "a new process is not followed")
        commands = [*clients(server, targets, brief), *verbs(targets, brief, folder)]
        with ThreadPoolExecutor(len(commands)) as pool:
            for done in [pool.submit(command) for command in commands]:
                done.result()
        if chance.random() < 0.5:
            brief.kill()
    await_true(lambda: brief.pid not in followed(server), "a process that ended is followed still")
    rounds = 0
    for target in targets:
        check(target)
        rounds += int(target.output[-1].split()[1])
        await_probes(target.pid, False)
    assert len(whole_profiles(folder)) == 4 * len(targets) + 3
    return rounds


def clients(server: Server, targets: Sequence[Target], brief: Target) -> list[Callable[[], object]]:
    """What is asked of the server at the same time."""
    one, other = targets

    def ask(pid: int, name: str) -> Callable[[], object]:
        path = f"/proc/{pid}/debug/pprof/{name}?seconds=1"
        kind: Kind = "cpu" if name == "profile" else "block"
        return lambda: server.get(path).profile(kind)

    return [
        ask(one.pid, "block"),
        ask(other.pid, "profile"),
        ask(other.pid, "mutex"),
        ask(brief.pid, "profile"),
        lambda: server.get("/metrics").body.index(b"ebpfprof_"),
    ]


def verbs(targets: Sequence[Target], brief: Target, folder: Path) -> list[Callable[[], object]]:
    """The command, in all ways in which it puts probes into a target."""
    pids = ",".join(str(target.pid) for target in targets)
    program_of_its_own = (str(program("checker")), "answer", "1000")
    return [
        lambda: run(folder, "attach", "--pid", pids, "--duration", "0.5", *ALL_PROFILES[2:]),
        lambda: run(folder, "run", "--", *program_of_its_own),
        lambda: run(folder, "top", "--pid", pids, "--interval", "0.5", "--batch", "2"),
    ]


def run(folder: Path, *arguments: str) -> None:
    """Run the command to its good end."""
    done = subprocess.run(
        [sys.executable, "-m", "ebpfprof", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    output = f"{arguments[0]}: {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.returncode == 0, output
    assert "Traceback" not in output, output


def followed(server: Server) -> list[int]:
    """The processes that the server can record."""
    listed = json.loads(server.get("/api/targets").body)["targets"]
    return [each["pid"] for each in listed if each["ended"] is None]


def now_held(server: Server, before: Held | None) -> Held:
    """What the server holds, once its connections are closed; no more files than `before`."""

    def files() -> int:
        # While it records, it has one more open for a moment now and then.
        return min(_open_now(server.pid) for _ in range(LOOKS))

    if before is not None:
        await_true(
            lambda: files() <= before.files,
            f"the server keeps files open: {open_files(server.pid)}",
        )
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return Held(
        resident_kib=pages * 4,
        files=files(),
        threads=len(os.listdir(f"/proc/{server.pid}/task")),
        objects=len(bpf_objects(server.pid)),
    )


def _open_now(pid: int) -> int:
    sleep(LOOK_S)
    return len(open_files(pid))


def main(arguments: Sequence[str]) -> int:
    """Parse the command line, go into a pid namespace, run, print the figures."""
    parser = argparse.ArgumentParser(description="Profile targets that check their own results.")
    parser.add_argument("--minutes", type=float, default=60)
    words = f"end after so many instead, at least {LEAST_CYCLES}"
    parser.add_argument("--cycles", type=int, help=words)
    parser.add_argument("--churn", action="store_true", help="processes that come and go")
    options = parser.parse_args(arguments)
    if os.getpid() != 1:
        inside = [*_ISOLATING, sys.executable, "-m", "tests.soak", *arguments]
        return subprocess.run(inside, cwd=ROOT, check=False).returncode
    until_s = monotonic() + 60 * options.minutes

    def goes_on(cycles: int) -> bool:
        is_over = cycles >= options.cycles if options.cycles else monotonic() >= until_s
        return not is_over or cycles < LEAST_CYCLES

    outcome = (churn if options.churn else soak)(goes_on)
    first, last = outcome.held[WARM_UP], outcome.held[-1]
    print(f"{len(outcome.held)} cycles in {outcome.length_s / 60:.1f} minutes")
    print(outcome.done)
    print(f"memory of the server: {first.resident_kib} KiB, then {last.resident_kib} KiB")
    for name in ("files", "threads", "objects"):
        print(f"{name} of the server: {getattr(first, name)}, then {getattr(last, name)}")
    for fault in outcome.faults():
        print("FAILED", fault)
    return 1 if outcome.faults() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
