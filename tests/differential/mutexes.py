"""Run mutexops under Go's own mutex profiler and ours, in the same run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ebpfprof.export import pprof
from ebpfprof.profile.model import Kind, Profile, Sample
from tests.differential.stacks import Value
from tests.recorder import recording
from tests.targets_run import Command, Target

MUTEXOPS = Path(__file__).parent.parent / "targets" / "mutexops"

# A thread that the kernel takes off the processor between two clocks makes the delays of a stack
# differ by whole time slices. That is chance, and hits another stack each time.
ATTEMPTS = 5

# The leaves of what the runtime's own locks show in a mutex profile from Go 1.22 on. When those
# are contended is another matter: tests/differential/test_runtime_locks.py.
RUNTIME_LOCKS = {"runtime.unlock", "runtime._LostContendedRuntimeLock"}


@dataclass(frozen=True)
class Truth:
    """What arithmetic on the target's clock says of the releases of one function.

    `square_ns2` is the sum of the squared delays of the single releases.
    """

    count: int
    delay_ns: int
    square_ns2: int


@dataclass(frozen=True)
class Run:
    """Go's mutex profile, our profiles and what was planned; all without the runtime's locks."""

    go: Profile
    ours: dict[Kind, Profile]
    planned: dict[str, int]
    truth: dict[str, Truth]

    @property
    def mutex(self) -> Profile:
        return self.ours["mutex"]


def record(
    program: Command,
    folder: Path,
    *arguments: str,
    kinds: tuple[Kind, ...] = ("mutex",),
    options: tuple[str, ...] = (),
) -> Run:
    """Run mutexops with `arguments` under both profilers, ours with `options`."""
    own = folder / "go.prof"
    with Target.start(program, "-mutexfraction=1", f"-profile={own}", *arguments) as target:
        asked_for = ("--profile", ",".join(kinds))
        with recording(target.pid, folder, *asked_for, *options) as recorder:
            target.ask("go", "done")
            output = json.loads(target.expect("{"))
            recorder.interrupt()
            finished = recorder.finish()
        assert finished.code == 0, finished.stderr
        target.ask("write", "written")
    return Run(
        go=without_runtime_locks(pprof.decode(own.read_bytes(), kind="mutex")),
        ours=written_profiles(folder, kinds),
        planned=output["planned"],
        truth={function: Truth(**sums) for function, sums in output["truth"].items()},
    )


def written_profiles(folder: Path, kinds: tuple[Kind, ...]) -> dict[Kind, Profile]:
    """Our profiles in `folder`, which must be one of each kind and no other."""
    profiles: dict[Kind, Profile] = {}
    for kind in kinds:
        (path,) = folder.glob(f"*.{kind}.pb.gz")
        profiles[kind] = without_runtime_locks(pprof.decode(path.read_bytes(), kind=kind))
    assert len(list(folder.glob("*.pb.gz"))) == len(kinds)
    return profiles


def without_runtime_locks(profile: Profile) -> Profile:
    return replace(
        profile, samples=tuple(s for s in profile.samples if leaf(s) not in RUNTIME_LOCKS)
    )


def leaf(sample: Sample) -> str:
    """The innermost function of a sample's stack."""
    return sample.locations[0].frames[0].function


def below(profile: Profile, function: str) -> Value:
    """The sum over stacks with a frame of main.FUNCTION, or of a closure or instance of it."""
    name = re.compile(rf"main\.(\(\*?\w+\)\.)?{function}\b")
    return total(
        sample
        for sample in profile.samples
        if any(name.match(f.function) for at in sample.locations for f in at.frames)
    )


def total(samples: Iterable[Sample]) -> Value:
    values = [sample.values for sample in samples]
    return Value(sum(count for count, _ in values), sum(delay_ns for _, delay_ns in values))


def losses(profile: Profile) -> list[str]:
    return [comment for comment in profile.comments if comment.startswith("incomplete: ")]


def agree_once(wrong_in_a_run: Callable[[Path], dict[str, str]], folder: Path) -> None:
    """Run until everything was right once, not all of it in the same run.

    `wrong_in_a_run` is given an empty folder and says what is wrong, by its name.
    """
    wrong: dict[str, str] | None = None
    for attempt in range(ATTEMPTS):
        attempt_folder = folder / str(attempt)
        attempt_folder.mkdir()
        wrong_now = wrong_in_a_run(attempt_folder)
        names = wrong_now if wrong is None else wrong
        wrong = {name: wrong_now[name] for name in names if name in wrong_now}
        if not wrong:
            return
    raise AssertionError(f"wrong in {ATTEMPTS} runs of {ATTEMPTS}: {wrong}")
