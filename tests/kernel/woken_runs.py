"""Recordings of who woke whom in the target `blockops`, beside Go's own block profile."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from ebpfprof.export import pprof
from ebpfprof.profile.model import Frame, Profile, Sample
from ebpfprof.profile.wakers import waiter_of, waker_of
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from tests.differential.stacks import Stack, Value, by_stack
from tests.kernel.programs import program
from tests.targets_run import Target

KINDS = ("block", "mutex", "wakers")


@dataclass(frozen=True)
class Run:
    """Go's block profile, ours by kind, the planned counts, and what was lost, by name."""

    go: Profile
    ours: dict[str, Profile]
    planned: dict[str, int]
    lost: dict[str, int]

    @property
    def waiters(self) -> Profile:
        """Our pairs without their wakers."""
        pairs = self.ours["wakers"]
        return replace(pairs, samples=tuple(map(waiter_of, pairs.samples)))

    @property
    def wakers(self) -> dict[Stack, Value]:
        """The sums of each stack that woke."""
        found = [by for by in map(waker_of, self.ours["wakers"].samples) if by]
        return by_stack(replace(self.ours["wakers"], samples=tuple(found)))


def record(
    folder: Path, *arguments: str, options: Options | None = None, version: str = "1.27"
) -> Run:
    own = folder / "go.prof"
    wanted = options or Options(kinds=KINDS)
    blockops = program("blockops", version)
    with Target.start(blockops, "-blockrate=1", f"-profile={own}", *arguments) as target:
        with Session([target.pid], wanted) as session:
            session.start()
            target.ask("go", "done")
            planned = json.loads(target.expect("{"))
            ((*profiles,),) = [report.profiles for report in session.finish()]
            lost = {loss.name: loss.count for loss in session.losses()}
        target.ask("write", "written")
    go = pprof.decode(own.read_bytes(), kind="block")
    return Run(go, {profile.kind: profile for profile in profiles}, planned, lost)


def counts_by_pair(profile: Profile) -> Counter[tuple[str, str]]:
    """How often a function of main waited, and which one woke it; "" for none of main."""
    found: Counter[tuple[str, str]] = Counter()
    for sample in profile.samples:
        by = waker_of(sample)
        assert by
        found[_of_main(waiter_of(sample)), _of_main(by)] += sample.values[0]
    return found


def _of_main(sample: Sample) -> str:
    names = (frame.function for frame in sample.frames if _is_of_main(frame))
    return next(names, "")


def _is_of_main(frame: Frame) -> bool:
    return frame.function.startswith("main.") and frame.function != "main.main"
