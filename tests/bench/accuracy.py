"""How exact a block profile is: the top stacks' delays beside Go's own profile of the same run."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Final

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.bench.costresults import Accuracy
from tests.bench.workloads import Running, Workload
from tests.differential.stacks import by_stack
from tests.recorder import recording

ROUND_S: Final = 0.25
TOP: Final = 10
LEAST_SHARE: Final = 0.01  # of all delay


def beside_go(workload: Workload, options: Sequence[str], seconds: float) -> Accuracy:
    """Record a workload for so long with the command, while Go's own takes every event, too."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        running = Running(workload, held)
        units = running.units_in(ROUND_S)
        running.target.ask("own block=1", "own")
        with recording(running.target.pid, folder, *options) as recorder:
            until = monotonic() + seconds
            while monotonic() < until:
                running.round(units)
            recorder.interrupt()
            recorder.finish()
        (path,) = folder.glob("*.block.pb.gz")
        ours = pprof.decode(path.read_bytes())
        written = folder / "go"
        running.target.ask(f"write {written}", "written")
        return compared(pprof.decode(written.read_bytes(), kind="block"), ours)


def compared(go: Profile, ours: Profile, top: int = TOP) -> Accuracy:
    """The top stacks by Go's delays, and ours of the same stacks, by delays and counts.

    Without those that have next to nothing of all delay: where there are few stacks, a lock that
    was waited for three times is among the top ten, and no sample of the time shows how long.
    """
    theirs, mine = by_stack(go), by_stack(ours)
    whole = sum(value.delay_ns for value in theirs.values())
    ranked = sorted(theirs, key=lambda stack: theirs[stack].delay_ns, reverse=True)[:top]
    ranked = [stack for stack in ranked if theirs[stack].delay_ns >= LEAST_SHARE * whole]
    differences = [
        abs((mine[stack].delay_ns if stack in mine else 0) / theirs[stack].delay_ns - 1)
        for stack in ranked
    ]
    counts = [
        abs((mine[stack].count if stack in mine else 0) / theirs[stack].count - 1)
        for stack in ranked
    ]
    return Accuracy(
        counts=max(counts),
        stacks=len(ranked),
        share=sum(theirs[stack].delay_ns for stack in ranked) / whole,
        largest=max(differences),
        whole=sum(value.delay_ns for value in mine.values()) / whole - 1,
        error=reported_error(ours),
    )


def reported_error(profile: Profile) -> float:
    """The largest standard error of the ten stacks with the longest delays, as a comment has it."""
    pattern = r"at most \+-([0-9.]+) % on (?:\d+ of )?the ten stacks"
    found = [re.search(pattern, line) for line in profile.comments]
    return max((float(match[1]) / 100 for match in found if match), default=0.0)
