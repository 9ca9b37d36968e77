"""How quick `ebpfprof top` is with many stacks, on a terminal of 200 x 60 characters.

    python -m tests.bench.bench_top [STACKS]

As root. First the table by itself, with a made-up profile of STACKS (20,000) stacks in thousands of
rows, all of which change at every sample: "a sample" is all from the profile to the screen, which
textual keeps in memory here; a key is from the press until the screen has changed. Then the
command, on a Go program that waits in STACKS different stacks without a pause: its first screen and
its first row, from its start; and how much of a processor it takes, with tables each second.
Medians and maxima in milliseconds.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Final

import psutil

from ebpfprof.profile.model import Profile
from ebpfprof.top.rows import Moment, Snapshot, TargetLine
from ebpfprof.top.state import TopView
from ebpfprof.top.table import TopTable
from tests.bench.bench_formats import large_profile
from tests.kernel.programs import program
from tests.targets_run import Target
from tests.unit.top.apps import Live, live

STACKS: Final = 20_000
COLUMNS: Final = 200
ROWS: Final = 60
LOOKS: Final = 5
TURNS: Final = 7
SECOND_NS: Final = 1_000_000_000
# What is measured, and the keys before and after it, without measuring.
KEYS: Final[Sequence[tuple[str, list[str], str, list[str]]]] = (
    ("next row", [], "j", []),
    ("last row", [], "G", ["g"]),
    ("sort by count", [], "c", ["d"]),
    ("sort by name", [], "n", ["d"]),
    ("reverse", [], "r", []),
    ("show or hide idle", [], "i", []),
    ("a letter of a search", ["slash", "g", "o"], "L", ["escape"]),
    ("stacks of a row", ["g"], "enter", ["escape"]),
    ("help", [], "h", ["h"]),
    ("pause", [], "p", []),
)
SCREEN_TAKEN: Final = b"\x1b[?1049h"
ROW: Final = b"main.step"
DEADLINE_S: Final = 60
WATCHED_S: Final = 10


def later(profile: Profile, factor: int) -> Profile:
    """The same stacks with larger sums."""
    samples = (replace(s, values=tuple(factor * v for v in s.values)) for s in profile.samples)
    return replace(profile, samples=tuple(samples))


def measure_table(kind: str, profile: Profile) -> dict[str, list[float]]:
    """The table of one view by itself."""
    profiles = [later(profile, factor) for factor in range(1, LOOKS + 1)]
    found: dict[str, list[float]] = {}
    table = TopTable(kind)

    async def use(on: Live) -> None:
        for number, each in enumerate(profiles, 1):
            began = time.perf_counter()
            reading = table.read([Snapshot(1, number * SECOND_NS, each)])
            targets = [TargetLine(1, "big", "go1.27.3")]
            await on.show(Moment({kind: reading}, targets, number * SECOND_NS, 0.1))
            found.setdefault("a sample", []).append(1000 * (time.perf_counter() - began))
        for name, before, key, after in KEYS:
            for _ in range(TURNS):
                await on.press(*before)
                began = time.perf_counter()
                await on.press(key)
                found.setdefault(name, []).append(1000 * (time.perf_counter() - began))
                await on.press(*after)

    live(TopView(Moment({}, [], 0, 0.0), [kind], kind), use, COLUMNS, ROWS)
    return found


def measure_command(stacks: int) -> dict[str, list[float]]:
    """The command itself, from its start."""
    found = {}
    with Target.start(program("manystacks")) as target:
        target.ask(f"loop {stacks}", "done")
        began = time.perf_counter()
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        command = [sys.executable, "-m", "ebpfprof", "top", "--pid", str(target.pid)]
        process = subprocess.Popen(
            [*command, "--profile", "block", "--interval", "1"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        try:
            for name, text in (("first screen", SCREEN_TAKEN), ("first row", ROW)):
                read_until(master, text)
                found[name] = [1000 * (time.perf_counter() - began)]
            used = psutil.Process(process.pid)
            before = used.cpu_times()
            ends = time.monotonic() + WATCHED_S
            while time.monotonic() < ends:
                if select.select([master], [], [], 0.1)[0]:
                    os.read(master, 1 << 16)
            after = used.cpu_times()
            spent = after.user + after.system - before.user - before.system
            found["CPU time in a second"] = [1000 * spent / WATCHED_S]
        finally:
            process.terminate()
            read_until(master, None)
            process.wait()
    return found


def read_until(master: int, text: bytes | None) -> None:
    """Read until there is such a text, or until no process has the terminal open."""
    seen = b""
    while text is None or text not in seen:
        if not select.select([master], [], [], DEADLINE_S)[0]:
            raise TimeoutError(f"{text!r} did not come")
        try:
            seen = seen[-100:] + os.read(master, 1 << 16)
        except OSError:  # it is closed
            return


def report(what: str, times: dict[str, list[float]]) -> None:
    """Print the rows of a table."""
    for name, each in times.items():
        print(f"{what:8} {name:28} {median(each):7.0f} {max(each):7.0f}", flush=True)


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    stacks = int(arguments[0]) if arguments else STACKS
    profile = large_profile(stacks)
    print(f"{stacks} stacks; milliseconds")
    print(f"{'':8} {'':28} {'median':>7} {'most':>7}", flush=True)
    for kind in ("block", "cpu"):
        report(kind, measure_table(kind, profile))
    report("command", measure_command(stacks))


if __name__ == "__main__":
    main(sys.argv[1:])
