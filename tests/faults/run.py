"""Runs `ebpfprof explain` on programs with one planted fault or none, and counts right answers.

    sudo .venv/bin/python -m tests.faults.run --rounds 3
    sudo .venv/bin/python -m tests.faults.run --real

    --real         servers that others wrote, where a disk, a quota or the network is the fault
    --names a,b    only these programs
    --healthy      only the healthy ones
    --seconds 10   how long explain observes
    --at-once 1    programs that run side by side; they disturb each other
    --keep FOLDER  keeps the JSON of each run there, as NAME-ROUND.json
    --output FILE  writes the table there, too: into the section of its programs

It is right on a program with a fault if the first finding has the kind of that fault, and on a
healthy program if it finds nothing. Exits with 1 if it was right in less than 90 % of the runs on
faults, or silent in less than 99 % of those on healthy programs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from tests.faults.programs import PROGRAMS, JudgedProgram
from tests.faults.real_programs import REAL_PROGRAMS
from tests.faults.results import write_section

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_RIGHT: Final = 0.9
LEAST_SILENT: Final = 0.99
WARM_UP_S: Final = 1.0
_OURS: Final = "Programs with one planted fault or none"
_REAL: Final = "Servers that others wrote"
_EXIT_CODES: Final = (0, 15)  # nothing was found, something was


class ExplainError(Exception):
    """explain failed; the message carries what it printed."""


@dataclass(frozen=True)
class Run:
    """What one run of explain found: kinds, the worst first. Seconds it took, and of CPU time."""

    program: JudgedProgram
    kinds: tuple[str, ...]
    seconds: float
    cpu_s: float

    @property
    def is_right(self) -> bool:
        if self.program.kind is None:
            return not self.kinds
        return self.kinds[:1] != () and self.kinds[0] in self.program.right


def explain(pid: int, seconds: float) -> tuple[str, float, float]:
    """What `explain --json` prints of a process, seconds it took, and of CPU time.

    Raises ExplainError.
    """
    command = (sys.executable, "-m", "ebpfprof", "explain", str(pid), "--json")
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        start = monotonic()
        child = subprocess.Popen(
            [*command, "--duration", str(seconds)], stdout=output, stderr=errors
        )
        _, status, usage = os.wait4(child.pid, 0)
        took_s = monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if child.returncode not in _EXIT_CODES:
            raise ExplainError(f"explain exited with {child.returncode}: {errors.read()}")
        return output.read(), took_s, usage.ru_utime + usage.ru_stime


def run(program: JudgedProgram, number: int, seconds: float, keep: Path | None) -> Run:
    """Start a program, explain it and end it. Raises ExplainError or TargetError."""
    with program.start() as target:
        sleep(WARM_UP_S)
        text, took_s, cpu_s = explain(target.ready_pid, seconds)
    if keep:
        (keep / f"{program.name}-{number}.json").write_text(text)
    (process,) = json.loads(text)["processes"]
    kinds = tuple(finding["kind"] for finding in process["findings"])
    done = Run(program, kinds, took_s, cpu_s)
    mark = "right" if done.is_right else "WRONG"
    print(f"{program.name:16} {mark}: {', '.join(kinds) or 'silent'}", file=sys.stderr, flush=True)
    return done


def table(runs: Sequence[Run]) -> list[str]:
    """Lines of a Markdown table, one for each program, in the order of the first runs."""
    lines = [
        "| program | planted | found first | right | silent |",
        "|---|---|---|---|---|",
    ]
    for program in dict.fromkeys(done.program for done in runs):
        its = [done for done in runs if done.program == program]
        firsts = Counter(done.kinds[0] for done in its if done.kinds)
        names = ", ".join(
            kind if number == len(its) else f"{kind} ({number})"
            for kind, number in firsts.most_common()
        )
        right = sum(done.is_right for done in its)
        silent = sum(not done.kinds for done in its)
        lines.append(
            f"| {program.name} | {program.kind or 'none'} | {names or 'nothing'} "
            f"| {right} of {len(its)} | {silent} of {len(its)} |"
        )
    return lines


def part_right(runs: Sequence[Run], *, healthy: bool) -> float | None:
    """The part of the runs on faults, or on healthy programs, that was right; None without any."""
    its = [done.is_right for done in runs if (done.program.kind is None) == healthy]
    return sum(its) / len(its) if its else None


def summary(runs: Sequence[Run]) -> list[str]:
    """Sentences on all runs."""
    lines = []
    for healthy, words in (
        (False, "The planted cause came first in"),
        (True, "Silent on healthy programs in"),
    ):
        part = part_right(runs, healthy=healthy)
        number = sum((done.program.kind is None) == healthy for done in runs)
        if part is not None:
            lines.append(f"{words} {part:.1%} of {number} runs.")
    took, cpu = [done.seconds for done in runs], [done.cpu_s for done in runs]
    lines.append(
        f"A run took {median(took):.1f} s (longest {max(took):.1f} s), "
        f"and {median(cpu):.2f} s of CPU time (most {max(cpu):.2f} s)."
    )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--names", default="")
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    programs: Sequence[JudgedProgram] = REAL_PROGRAMS if options.real else PROGRAMS
    known = [program.name for program in programs]
    names = options.names.split(",") if options.names else known
    unknown = set(names).difference(known)
    if unknown:
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    chosen = [program for program in programs if program.name in names]
    if options.healthy:
        chosen = [program for program in chosen if program.kind is None]
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    if not chosen:
        parser.error("no program is chosen")
    for program in chosen:
        program.build()  # before programs run side by side
    with ThreadPoolExecutor(options.at_once) as pool:
        pending = [
            pool.submit(run, program, number, options.seconds, options.keep)
            for number in range(options.rounds)
            for program in chosen
        ]
        runs = [future.result() for future in pending]
    text = "\n".join([*table(runs), "", *summary(runs)])
    print(text)
    if options.output:
        write_section(options.output, _REAL if options.real else _OURS, text)
    right, silent = part_right(runs, healthy=False), part_right(runs, healthy=True)
    is_good = (right is None or right >= LEAST_RIGHT) and (silent is None or silent >= LEAST_SILENT)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
