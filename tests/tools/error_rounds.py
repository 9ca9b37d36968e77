"""How honest told errors are: records a known program again and again, beside Go's own profile.

    sudo .venv/bin/python -m tests.tools.error_rounds --rounds 200

Each round starts the program (tests/targets/load: a contended lock, channels, selects, long waits)
and records its block profile with the default bound on the overhead, and its wall profile, while
Go's own block profile takes every event. Of each stack it tells in how many rounds the truth was
within 1.96 of the reported standard errors, and the mean of what was reported, as a part of the
truth. A stack counts in rounds in which samples found it ten times or more: an error that comes
from fewer hits is itself not known. Ctrl-C ends it early.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ebpfprof.export import pprof
from ebpfprof.profile.model import Frame, Profile
from ebpfprof.profile.operations import STATE
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from tests.kernel.programs import program
from tests.targets_run import Target

SECONDS: Final = 2.0
ROUNDS: Final = 200
_WITHIN: Final = 1.96  # standard errors: 95 %
_LEAST_SHARE: Final = 0.001  # of all delay
_MAX_ERROR: Final = 0.32  # of the delay: that of ten hits
_PARKING: Final = 8  # functions between the operation and the park
_NOT_WAITING: Final = frozenset({"running", "runnable", "syscall"})

Stack = tuple[tuple[str, int], ...]
"""Functions and lines, innermost first: the first one without its line, without wrappers."""


class Reported(NamedTuple):
    """What a profile reports for a stack, in ns and ns²."""

    ns: int
    variance: float


class Row(NamedTuple):
    """A stack in one round: the profile of ours, what it told, what Go's own profile has."""

    way: str
    stack: Stack
    told: Reported
    truth_ns: int

    @property
    def is_inside(self) -> bool:
        """Whether the interval of 95 % holds the truth."""
        return abs(self.told.ns - self.truth_ns) <= _WITHIN * math.sqrt(self.told.variance)


@dataclass
class Tally:
    """The rounds of one stack in one profile."""

    rounds: int = 0
    inside: int = 0
    ratio: float = 0.0
    error: float = 0.0

    def add(self, row: Row) -> None:
        """Count a round."""
        self.rounds += 1
        self.inside += row.is_inside
        self.ratio += row.told.ns / row.truth_ns
        self.error += math.sqrt(row.told.variance) / row.truth_ns


def one_round(
    seconds: float,
    folder: Path,
    *,
    kinds: Sequence[str] = ("block", "wall"),
    wall_hz: int = 100,
) -> list[Row]:
    """Record the program once, from before its work until after it.

    On a busy machine there are fewer samples; `wall_hz` sets how many there are at most.
    """
    own = folder / "own.pb"
    own.unlink(missing_ok=True)
    options = Options(kinds=kinds, max_overhead=1, wall_hz=wall_hz)
    arguments = [f"-length={seconds}s", f"-block={own}", "-pace=100us"]
    with Target.start(program("load"), *arguments) as target:
        with Session([target.pid], options) as session:
            session.start()
            target.ask("go", "done")
            (report,) = session.finish()
        target.ask("write", "written")
        target.kill()
    truth = _truth(pprof.decode(own.read_bytes(), kind="block"))
    rows = []
    for profile in report.profiles:
        reported = _reported(profile)
        rows += [
            Row(profile.kind, stack, each, truth[stack])
            for stack, each in _by_truth(reported, truth).items()
        ]
    return rows


def _truth(profile: Profile) -> dict[Stack, int]:
    found: dict[Stack, int] = defaultdict(int)
    for sample in profile.samples:
        found[_stack(sample.frames)] += sample.values[1]
    least = _LEAST_SHARE * sum(found.values())
    return {
        stack: ns
        for stack, ns in found.items()
        if ns >= least and stack[-1][0] != "main.waitSinceBefore"
    }


def _reported(profile: Profile) -> dict[Stack, Reported]:
    found: dict[Stack, Reported] = {}
    for sample in profile.samples:  # a stack has one for each set of labels
        states = {label.value for label in sample.labels if label.key == STATE}
        if states & _NOT_WAITING:
            continue
        stack = _stack(sample.frames)
        before = found.get(stack, Reported(0, 0.0))
        found[stack] = Reported(before.ns + sample.values[1], before.variance + sample.variance)
    return {
        stack: each
        for stack, each in found.items()
        if 0 < each.variance <= (_MAX_ERROR * each.ns) ** 2
    }


def _by_truth(
    reported: Mapping[Stack, Reported], truth: Mapping[Stack, int]
) -> dict[Stack, Reported]:
    """What was reported, by the stacks of Go's block profile: without how a goroutine parks."""
    found = {}
    for stack, each in reported.items():
        for first in range(min(_PARKING, len(stack))):
            inner = ((stack[first][0], 0), *stack[first + 1 :])
            if inner in truth:
                found[inner] = each
                break
    return found


def _stack(frames: Sequence[Frame]) -> Stack:
    found = [(frame.function, frame.line) for frame in frames if ".gowrap" not in frame.function]
    return ((found[0][0], 0), *found[1:])


def tallied(rounds: Iterator[list[Row]]) -> dict[tuple[str, Stack], Tally]:
    """The rounds by profile and stack."""
    found: dict[tuple[str, Stack], Tally] = defaultdict(Tally)
    for rows in rounds:
        for row in rows:
            found[row.way, row.stack].add(row)
    return found


def shown(found: Mapping[tuple[str, Stack], Tally]) -> str:
    """A line for each stack."""
    lines = [f"{'profile':8} {'within 95 %':>16} {'told/truth':>10} {'error':>7}  stack"]
    for (way, stack), each in sorted(found.items(), key=lambda item: (item[0][0], str(item[0][1]))):
        operation = (
            f"{stack[0][0]} in {stack[1][0]}:{stack[1][1]}" if len(stack) > 1 else stack[0][0]
        )
        lines.append(
            f"{way:8} {each.inside:4} of {each.rounds:4} {each.inside / each.rounds:4.0%} "
            f"{each.ratio / each.rounds:10.3f} {each.error / each.rounds:7.1%}  {operation}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="tests.tools.error_rounds", description="Judge errors.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    reported = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        print(shown(tallied(_rounds(reported.rounds, reported.seconds, Path(folder)))))
    return 0


def _rounds(count: int, seconds: float, folder: Path) -> Iterator[list[Row]]:
    with suppress(KeyboardInterrupt):
        for _ in range(count):
            yield one_round(seconds, folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
