"""The heap and allocs profiles, from outside and by Go itself, value by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.builds import builds, versions
from tests.kernel.programs import program
from tests.recorder import run
from tests.targets_run import Target

Stack = tuple[tuple[tuple[str, str, int], ...], ...]
Row = tuple[Stack, tuple[tuple[str, object], ...]]
TYPES = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]
EVERY_ALLOCATION = 1
GOS_RATE = 512 << 10


def rows(profile: Profile) -> Counter[tuple[Row, int]]:
    """The sum of each value, by stack and size. Go also has rows of zeros, which say nothing."""
    found = Counter[tuple[Row, int]]()
    for sample in profile.samples:
        stack = tuple(
            tuple((f.function, f.file, f.line) for f in location.frames)
            for location in sample.locations
        )
        labels = tuple((label.key, label.value) for label in sample.labels)
        for index, value in enumerate(sample.values):
            found[(stack, labels), index] += value
    return +found


@contextmanager
def running(
    version: str, mode: str = "plain", rate: int = GOS_RATE, **env: str
) -> Iterator[Target]:
    with Target.start(program("heap", version, mode), str(rate), env=env) as target:
        yield target


def order(target: Target, command: str) -> None:
    target.ask(command, "done")


def recorded(target: Target, folder: Path, *more: str) -> dict[str, Profile]:
    """The heap and allocs profiles, by their kinds."""
    folder.mkdir()
    finished = run(
        *("--pid", str(target.pid), "--profile", "heap,allocs", "-d", "0.1", *more), folder=folder
    )
    assert finished.code == ExitCode.OK, finished.stderr
    found = [pprof.decode(each.read_bytes()) for each in folder.iterdir()]
    return {each.kind: each for each in found}


@pytest.mark.parametrize("rate", [EVERY_ALLOCATION, GOS_RATE])
@pytest.mark.parametrize(("version", "mode"), builds())
def test_every_value_equals_gos(version: str, mode: str, rate: int, tmp_path: Path) -> None:
    with running(version, mode, rate, GOGC="off") as target:
        order(target, "make 300" if rate == EVERY_ALLOCATION else "make 1500")
        order(target, "gc")
        order(target, "make 30")  # neither shows what was allocated since
        ours = recorded(target, tmp_path / "ours")
        order(target, f"own {tmp_path}")
    for kind in ("heap", "allocs"):
        theirs = pprof.decode((tmp_path / f"{kind}.pb.gz").read_bytes())
        assert theirs.kind == kind
        assert [each.type for each in ours[kind].sample_types] == TYPES
        assert ours[kind].period == theirs.period == rate
        assert ours[kind].period_type == theirs.period_type
        assert ours[kind].default_sample_type == theirs.default_sample_type
        expected = rows(theirs)
        assert sum(1 for _, index in expected if index == 0) >= (3 if rate > 1 else 40)
        assert rows(ours[kind]) == expected


@pytest.mark.parametrize("version", versions())
def test_before_the_first_collection_it_shows_all_there_is(version: str, tmp_path: Path) -> None:
    """As Go does. Go's own writing of the profile is sampled, too: only in Go's."""
    with running(version, rate=EVERY_ALLOCATION, GOGC="off") as target:
        order(target, "make 10")
        ours = recorded(target, tmp_path / "ours")["heap"]
        order(target, f"own {tmp_path}")
    theirs = pprof.decode((tmp_path / "heap.pb.gz").read_bytes())

    def of_work(profile: Profile) -> Counter[tuple[Row, int]]:
        return Counter(
            {
                key: value
                for key, value in rows(profile).items()
                if "main.work" in {f for frames in key[0][0] for f, _, _ in frames}
            }
        )

    assert len(of_work(theirs)) >= 40
    assert of_work(ours) == of_work(theirs)
    assert any("no garbage collection yet" in comment for comment in ours.comments)
