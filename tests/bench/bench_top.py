"""How quick `ebpfprof top` is with many stacks, on a terminal of 200 x 60 characters.

    python -m tests.bench.bench_top [STACKS]

As root. First the table by itself, with a made-up profile of STACKS (20,000) stacks in thousands
of rows, all of which change at every look: "first table" is all from the profile to the screen; an
interaction is from the key until the last byte of the new screen is written, alone, and while
another thread does nothing but look. Then the command, on a Go program that waits in STACKS
different stacks without a pause: its first screen and its first table, from its start, and keys,
from the press until the new screen was read. Medians and maxima in milliseconds.
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
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from statistics import median
from typing import Final

from ebpfprof.profile.model import Profile
from ebpfprof.top.rows import Moment, Snapshot, TargetLine
from ebpfprof.top.screen import lines
from ebpfprof.top.state import TopView
from ebpfprof.top.table import TopTable
from ebpfprof.top.terminal import TopTerminal
from tests.bench.bench_formats import large_profile
from tests.kernel.programs import program
from tests.targets_run import Target

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
    ("sort by mean", [], "m", ["d"]),
    ("sort by name", [], "n", ["d"]),
    ("reverse", [], "r", []),
    ("show or hide idle", [], "i", []),
    ("a letter of a filter", ["/", "g", "o"], "L", ["escape"]),
    ("the end of a filter", ["/", "g", "o"], "escape", []),
    ("stacks of a row", ["g"], "enter", ["escape"]),
    ("next line of stacks", ["g", "enter"], "j", ["escape"]),
    ("help", [], "h", ["h"]),
    ("pause", [], "p", []),
)
BYTES: Final = {"escape": b"\x1b", "enter": b"\r"}
SCREEN_TAKEN: Final = b"\x1b[?1049h"
DRAWN: Final = b"\x1b[K\x1b[J"
ROW: Final = b"main.step"
DEADLINE_S: Final = 60


def open_terminal() -> tuple[int, int]:
    """Both ends of a terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    return master, slave


@contextmanager
def terminal() -> Iterator[TopTerminal]:
    """A terminal in place of stdin and stdout; a thread reads what is written on it."""
    master, slave = open_terminal()
    threading.Thread(target=drain, args=(master,), daemon=True).start()
    saved = sys.stdin, sys.stdout
    with open(slave) as stdin, open(slave, "w", encoding="utf-8", closefd=False) as stdout:
        sys.stdin, sys.stdout = stdin, stdout
        try:
            with TopTerminal() as shown:
                yield shown
        finally:
            sys.stdin, sys.stdout = saved


def drain(master: int) -> None:
    """Read until no process has the terminal open."""
    try:
        while os.read(master, 1 << 16):
            pass
    except OSError:
        os.close(master)


def later(profile: Profile, factor: int) -> Profile:
    """The same stacks with larger sums."""
    samples = (replace(s, values=tuple(factor * v for v in s.values)) for s in profile.samples)
    return replace(profile, samples=tuple(samples))


def took_ms(run: Callable[[], object]) -> float:
    """How long it takes, in milliseconds."""
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1000


@contextmanager
def running(work: Callable[[], object]) -> Iterator[None]:
    """While a thread does nothing else, again and again."""
    ends = threading.Event()

    def run() -> None:
        while not ends.is_set():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def keys_ms(press: Callable[[str], object]) -> dict[str, list[float]]:
    """How long each key takes."""
    found: dict[str, list[float]] = {}
    for name, before, key, after in KEYS:
        for _ in range(TURNS):
            for each in before:
                press(each)
            found.setdefault(name, []).append(took_ms(lambda key=key: press(key)))  # type: ignore[misc]
            for each in after:
                press(each)
    return found


def measure_table(screen: TopTerminal, kind: str, profile: Profile) -> dict[str, list[float]]:
    """The table of one view by itself."""
    profiles = [later(profile, factor) for factor in range(1, LOOKS + 1)]
    view = TopView(Moment({}, [], 0, 0.0), [kind], kind)

    def draw() -> None:
        screen.draw(lines(view, COLUMNS - 1, ROWS))

    def press(key: str) -> None:
        view.press(key)
        draw()

    def look(table: TopTable, number: int) -> None:
        now_ns = (number + 1) * SECOND_NS
        reading = table.read([Snapshot(1, now_ns, profiles[number])])
        view.moment = Moment({kind: reading}, [TargetLine(1, "big", "go1.27.3")], now_ns, 0.1)

    table = TopTable(kind)

    def first() -> None:
        look(table, 0)
        draw()

    found = {"first table": [took_ms(first)]}
    found["a look"] = [took_ms(lambda n=n: look(table, n)) for n in range(1, LOOKS)]  # type: ignore[misc]
    found |= keys_ms(press)
    other, seconds = TopTable(kind), count(1)
    with running(lambda: other.read([Snapshot(1, next(seconds) * SECOND_NS, profile)])):
        found |= {f"{name}, busy": times for name, times in keys_ms(press).items()}
    return found


class Command:
    """`ebpfprof top` in a terminal of its own."""

    def __init__(self, pid: int) -> None:
        self._master, slave = open_terminal()
        command = [sys.executable, "-m", "ebpfprof", "top", "--pid", str(pid)]
        self._process = subprocess.Popen(
            [*command, "--profile", "block"], stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        self._seen = b""

    def wait_for(self, text: bytes) -> None:
        """Read until there is such a text."""
        while text not in self._seen:
            assert select.select([self._master], [], [], DEADLINE_S)[0], f"{text!r} did not come"
            self._seen += os.read(self._master, 1 << 16)
        self._seen = self._seen.partition(text)[2]

    def press(self, key: str) -> None:
        """Press a key, and read all that is drawn then."""
        self._seen = b""
        os.write(self._master, BYTES.get(key, key.encode()))
        self.wait_for(DRAWN)

    def end(self) -> None:
        """End it."""
        self._process.terminate()
        drain(self._master)
        self._process.wait()


def measure_command(stacks: int) -> dict[str, list[float]]:
    """The command itself, from its start."""
    with Target.start(program("manystacks")) as target:
        target.ask(f"loop {stacks}", "done")
        began = time.perf_counter()
        command = Command(target.pid)
        try:
            found = {}
            for name, text in (("first screen", SCREEN_TAKEN), ("first table", ROW)):
                command.wait_for(text)
                command.wait_for(DRAWN)
                found[name] = [(time.perf_counter() - began) * 1000]
            time.sleep(10)  # so that all the stacks were seen
            return found | keys_ms(command.press)
        finally:
            command.end()


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
    kinds: tuple[str, ...] = ("block", "cpu")
    for kind in kinds:
        with terminal() as screen:
            found = measure_table(screen, kind, profile)
        report(kind, found)
    report("command", measure_command(stacks))


if __name__ == "__main__":
    main(sys.argv[1:])
