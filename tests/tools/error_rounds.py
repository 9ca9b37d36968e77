"""Whether reported errors are right: records programs again and again, beside Go's own profiles.

    sudo .venv/bin/python -m tests.tools.error_rounds [--rounds N] [--programs A,B] [--ways A,B]
                                                      [--seconds S] [--write]

Each round starts a program and records its block and mutex profiles, by default within a limit on
the overhead, or one wait in eight all the time, while Go's own profilers take every event. Of each
stack it shows in how many rounds the interval of 95 % contained Go's own number, how wide these
intervals were, and whether they were as wide as they had to be. What a table shows as unknown is
not judged. Waits that goroutine samples see (wall) are judged on one program, `load`.

Prints a line for each stack. With --write, the table of all programs goes to docs/costs.md.
200 rounds of all take six hours. Ctrl-C ends it early, with what there is.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from ebpfprof.export import pprof
from ebpfprof.profile.evidence import is_ranked, is_unknown_release
from ebpfprof.profile.model import Frame, Profile
from ebpfprof.profile.operations import STATE
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from tests.bench.costresults import table
from tests.bench.workloads import PATTERNS, WORKLOADS, Running, Workload
from tests.kernel.programs import program
from tests.targets_run import Target
from tests.toolchains import MINORS

SECONDS: Final = 1.0
ROUNDS: Final = 200
DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "costs.md"
BEGIN: Final = "<!-- tests.tools.error_rounds: begin -->"
END: Final = "<!-- tests.tools.error_rounds: end -->"
WAYS: Final = {
    "default": Options(kinds=("block", "mutex"), max_overhead=1),
    "eighth": Options(kinds=("block", "mutex"), one_in_eight=1),
    "wall": Options(kinds=("wall",), max_overhead=1),
}
TITLES: Final = {"default": "default", "eighth": "one in eight", "wall": "wall"}
_WITHIN: Final = 1.96  # standard errors: 95 %
_PROBABLE: Final = 0.6745  # standard errors: half of all
_LEAST_SHARE: Final = 0.001  # of all delay
_PAUSES_S: Final = (0.05, 0.15)  # before and after the work
_PARKING: Final = 8  # functions between the operation and the park
_NOT_WAITING: Final = frozenset({"running", "runnable", "syscall"})
_RUNTIME_LOCKS: Final = frozenset({"runtime.unlock", "runtime._LostContendedRuntimeLock"})

Stack = tuple[tuple[str, int], ...]
"""Functions and lines, innermost first: the first one without its line, without wrappers."""
ALL: Final[Stack] = (("all releases", 0),)


class Number(NamedTuple):
    """A count, or a delay in ns, and its variance."""

    value: float
    variance: float = 0.0


class Row(NamedTuple):
    """A number in one round: ours, and Go's own."""

    program: str
    way: str
    what: str
    """block or mutex or wall, and count or delay."""
    stack: Stack
    ours: Number
    gos: float

    @property
    def is_shown(self) -> bool:
        """Whether tables show the number."""
        return self.ours.value > 0 and is_ranked(*self.ours)

    @property
    def is_inside(self) -> bool:
        """Whether the interval of 95 % contains Go's own number; counts are rounded down."""
        return abs(self.ours.value - self.gos) <= _WITHIN * math.sqrt(self.ours.variance) + 1

    @property
    def deviation(self) -> float:
        """By how many standard errors they are apart."""
        return abs(self.ours.value - self.gos) / math.sqrt(self.ours.variance)


@dataclass
class Tally:
    """The rounds of one number, or of all numbers of a kind."""

    rounds: int = 0
    inside: int = 0
    hidden: int = 0
    """Rounds in which tables don't show the number."""
    ratios: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    """Half of the interval, as a part of Go's number."""
    deviations: list[float] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Add a round."""
        if not row.is_shown:
            self.hidden += 1
            return
        self.rounds += 1
        self.inside += row.is_inside
        self.ratios.append(row.ours.value / row.gos)
        self.widths.append(_WITHIN * math.sqrt(row.ours.variance) / row.gos)
        if row.ours.variance:
            self.deviations.append(row.deviation)

    @property
    def share(self) -> float:
        """The part of the intervals that contained Go's number."""
        return self.inside / self.rounds if self.rounds else math.nan

    @property
    def width(self) -> float:
        """The median of half of an interval, as a part of Go's number."""
        return median(self.widths) if self.widths else math.nan

    @property
    def ratio(self) -> float:
        """The median of what we report, as a part of Go's number."""
        return median(self.ratios) if self.ratios else math.nan

    @property
    def scale(self) -> float:
        """How large errors are as a part of the reported ones: below 1, intervals are too wide."""
        return median(self.deviations) / _PROBABLE if self.deviations else math.nan


class GoProfiles(NamedTuple):
    """Go's own profiles of a round."""

    block: Profile
    mutex: Profile


class Load:
    """tests/targets/load: a contended lock, channels, selects, long waits."""

    title = "load"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def start(self, folder: Path, held: ExitStack) -> int:
        """Start it, without its work; returns its pid."""
        self._files = [folder / "own.block", folder / "own.mutex"]
        block, mutex = self._files
        arguments = (f"-length={self._seconds}s", f"-block={block}", f"-mutex={mutex}")
        self._target = held.enter_context(Target.start(program("load"), *arguments, "-pace=100us"))
        return self._target.pid

    def work(self) -> None:
        """Do the work of a round."""
        self._target.ask("go", "done")

    def profiles(self) -> GoProfiles:
        """Go's own profiles of that."""
        self._target.ask("write", "written")
        self._target.kill()
        return _read(*self._files)


class OfWorkload:
    """A workload of tests/targets/workloads, of a Go version."""

    def __init__(self, workload: Workload, seconds: float, minor: str = MINORS[-1]) -> None:
        self.title = workload.title + ("" if minor == MINORS[-1] else f" (Go {minor})")
        self._workload, self._seconds, self._minor = workload, seconds, minor
        self._units = 0

    def start(self, folder: Path, held: ExitStack) -> int:
        """Start it, without its work; returns its pid."""
        self._file = folder / "own"
        self._running = Running(self._workload, held, self._minor)
        own = "own block=1 mutex=1"
        if not self._units:
            self._running.target.ask(own, "own")
            self._units = self._running.units_in(self._seconds)
            self._running.target.kill()
            self._running = Running(self._workload, held, self._minor)
        self._running.round(1)  # goroutines of a server that wait for connections
        self._running.target.ask(own, "own")
        return self._running.target.pid

    def work(self) -> None:
        """Do the work of a round."""
        self._running.round(self._units)

    def profiles(self) -> GoProfiles:
        """Go's own profiles of that."""
        self._running.target.ask(f"write {self._file}", "written")
        return _read(self._file, self._file.with_name(f"{self._file.name}.mutex"))


Program = Load | OfWorkload


def programs(seconds: float) -> dict[str, Program]:
    """All programs, by name; their work takes so many seconds."""
    found: list[Program] = [Load(seconds)]
    found += [OfWorkload(each, seconds) for each in (*WORKLOADS, *PATTERNS)]
    (calls,) = (each for each in PATTERNS if each.name == "systemcalls")
    found.append(OfWorkload(calls, seconds, "1.25"))  # the last one that counts them as stops
    return {each.title: each for each in found}


def _read(block: Path, mutex: Path) -> GoProfiles:
    return GoProfiles(
        pprof.decode(block.read_bytes(), kind="block"),
        pprof.decode(mutex.read_bytes(), kind="mutex"),
    )


def one_round(session: LiveSession, way: str, judged: Program, folder: Path) -> list[Row]:
    """Record a program once, from before its work until after it."""
    with ExitStack() as held:
        target = session.add(judged.start(folder, held))
        held.callback(session.remove, target)
        session.start(target)
        _pause()
        judged.work()
        _pause()
        session.stop(target)
        report = session.report(session.sums(target))
        gos = judged.profiles()
        return [row for ours in report.profiles for row in _rows(judged.title, way, ours, gos)]


def _pause() -> None:
    """Waits that begin at the same time in all rounds would be as far from a sample in all."""
    time.sleep(random.uniform(*_PAUSES_S))  # the program's moment must be a random one


def _rows(title: str, way: str, ours: Profile, gos: GoProfiles) -> Iterator[Row]:
    theirs = gos.mutex if ours.kind == "mutex" else gos.block
    counts, delays = _of_go(theirs, 0), _of_go(theirs, 1)
    if ours.kind != "wall":
        for stack, number in _by_gos(_of_ours(ours, 0), counts).items():
            yield Row(title, way, f"{ours.kind} count", stack, number, counts[stack])
    if ours.kind != "mutex":
        for stack, number in _by_gos(_of_ours(ours, 1), delays).items():
            if number.variance:  # exact delays differ by what lies between two clocks
                yield Row(title, way, f"{ours.kind} delay", stack, number, delays[stack])
    else:
        # How Go splits it among releases is not what they caused (golang/go#73760).
        waited_ns = sum(ns for stack, ns in _of_go(gos.block, 1).items() if _is_lock(stack))
        numbers = _of_ours(ours, 1).values()
        number = Number(sum(n.value for n in numbers), sum(n.variance for n in numbers))
        if waited_ns and number.variance:
            yield Row(title, way, "mutex delay", ALL, number, waited_ns)


def _is_lock(stack: Stack) -> bool:
    function = stack[0][0]
    return function.startswith(("sync.", "internal/sync.")) and function.endswith("Lock")


def _of_go(profile: Profile, column: int) -> dict[Stack, int]:
    """The counts or delays of stacks, without those that have next to nothing of all delay."""
    found, delays = defaultdict[Stack, int](int), defaultdict[Stack, int](int)
    for sample in profile.samples:
        stack = _stack(sample.frames)
        if stack[0][0] not in _RUNTIME_LOCKS:
            found[stack] += sample.values[column]
            delays[stack] += sample.values[1]
    least = _LEAST_SHARE * sum(delays.values())
    return {
        stack: value
        for stack, value in found.items()
        if delays[stack] >= least and stack[-1][0] != "main.waitSinceBefore" and value > 0
    }


def _of_ours(profile: Profile, column: int) -> dict[Stack, Number]:
    found: dict[Stack, Number] = {}
    for sample in profile.samples:  # a stack has one for each set of labels
        states = {label.value for label in sample.labels if label.key == STATE}
        stack = (("", 0),) if is_unknown_release(sample) else _stack(sample.frames)
        if states & _NOT_WAITING or stack[0][0] in _RUNTIME_LOCKS:
            continue
        variance = sample.variance if column else sample.count_variance
        before = found.get(stack, Number(0, 0.0))
        found[stack] = Number(before.value + sample.values[column], before.variance + variance)
    return found


def _by_gos(ours: Mapping[Stack, Number], gos: Mapping[Stack, int]) -> dict[Stack, Number]:
    """What was reported, by the stacks of Go's profile: without how a goroutine parks.

    Stacks that were not recorded have 0.
    """
    found = dict.fromkeys(gos, Number(0))
    for stack, number in ours.items():
        for first in range(min(_PARKING, len(stack))):
            inner = ((stack[first][0], 0), *stack[first + 1 :])
            if inner in gos:
                found[inner] = number
                break
    return found


def _stack(frames: Sequence[Frame]) -> Stack:
    found = [(frame.function, frame.line) for frame in frames if ".gowrap" not in frame.function]
    return ((found[0][0], 0), *found[1:])


Key = tuple[str, str, str, Stack]


def tallied(rows: Iterable[Row]) -> dict[Key, Tally]:
    """The rounds by program, way, kind of number and stack."""
    found: dict[Key, Tally] = defaultdict(Tally)
    for row in rows:
        found[row[:4]].add(row)
    return found


def together(rows: Iterable[Row]) -> dict[tuple[str, str, str], Tally]:
    """The same for all stacks of a program together."""
    found: dict[tuple[str, str, str], Tally] = defaultdict(Tally)
    for row in rows:
        found[row[:3]].add(row)
    return found


def shown(rows: Sequence[Row]) -> str:
    """A line for each stack."""
    lines = [
        f"{'program':22} {'way':8} {'number':12} {'within 95 %':>15} {'not shown':>9} "
        f"{'ours/Go':>7} {'+-':>7} {'scale':>5}  stack"
    ]
    for (title, way, what, stack), found in sorted(tallied(rows).items(), key=str):
        operation = (
            f"{stack[0][0]} in {stack[1][0]}:{stack[1][1]}" if len(stack) > 1 else stack[0][0]
        )
        lines.append(
            f"{title:22} {way:8} {what:12} {found.inside:4} of {found.rounds:4} {found.share:4.0%} "
            f"{found.hidden:9} {found.ratio:7.3f} {found.width:7.1%} {found.scale:5.2f}  "
            f"{operation}"
        )
    return "\n".join(lines)


COLUMNS: Final = ("block count", "block delay", "mutex count", "mutex delay")


def docs_table(rows: Sequence[Row]) -> str:
    """A row for each program and way, in Markdown."""
    found = together(row for row in rows if row.way != "wall")
    header = ["program", "recorded", *COLUMNS]
    lines = []
    for title, way in dict.fromkeys((title, way) for title, way, _ in found):
        cells = [_cell(found.get((title, way, what))) for what in COLUMNS]
        lines.append([title, TITLES[way], *cells])
    return table(header, lines)


def _cell(tally: Tally | None) -> str:
    if tally is None or not tally.rounds:
        return "-"
    return f"{tally.share:.0%} of {tally.rounds:,}; ±{tally.width:.1%}"


def rounds_of(rows: Sequence[Row]) -> int:
    """How many rounds these are, of the program that had most."""
    return max((tally.rounds + tally.hidden for tally in tallied(rows).values()), default=0)


def write_docs(rows: Sequence[Row]) -> None:
    """Put the table between its marks, with when, how many rounds, and beside how much work."""
    load = f"{os.cpu_count()} CPUs, load {os.getloadavg()[-1]:.1f}"
    machine = f"{datetime.now(UTC).date()}, {rounds_of(rows)} rounds, {load}."
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{machine}\n\n{docs_table(rows)}\n{END}{after}")


def main(arguments: Sequence[str]) -> int:
    """Command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="tests.tools.error_rounds", description="Judge errors.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--programs", help="some of them, by title, with commas between")
    parser.add_argument("--ways", default=",".join(WAYS), help=f"some of {', '.join(WAYS)}")
    parser.add_argument("--write", action="store_true", help="the table to docs/costs.md")
    given = parser.parse_args(arguments)
    known = programs(given.seconds)
    chosen = given.programs.split(",") if given.programs else list(known)
    rows: list[Row] = []
    with suppress(KeyboardInterrupt):
        rows.extend(  # which keeps those before an interrupt
            all_rounds([known[title] for title in chosen], given.ways.split(","), given.rounds)
        )
    print(shown(rows))
    if given.write:
        write_docs(rows)
    return 0


def all_rounds(chosen: Sequence[Program], ways: Sequence[str], count: int) -> Iterator[Row]:
    """The rows of that many rounds of each program, in turns: slow changes hit all alike."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held:
        sessions = {way: held.enter_context(LiveSession(WAYS[way])) for way in ways}
        for number in range(count):
            for way, session in sessions.items():
                for each in chosen:
                    if way != "wall" or each.title == Load.title:
                        yield from one_round(session, way, each, Path(folder))
            print(f"round {number + 1} of {count}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
