"""A target that changes its stacks and labels all the time: no stack is ever another goroutine's.

The goroutines of tests/targets/races are of families: all frames of package main on a stack are
of one, and the label `family` is that one's. So a stack put together from two goroutines, or from
two moments, shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile, Sample
from tests.builds import NEWEST, in_full
from tests.differential.stacks import Value, by_stack, shown
from tests.differential.test_block import lost_events
from tests.recorder import end, event_count, recording
from tests.targets_run import Target
from tests.toolchains import toolchain

RACES = Path(__file__).parent.parent / "targets" / "races"
FAMILIES = frozenset({"crane", "heron", "ibis", "stork", "egret"})
RECIPES = {
    "all": ("--profile", "block,mutex,cpu", "--hz", "499"),
    "by-lock": ("--profile", "mutex", "--by-lock"),
    # Stacks are taken when others may move them.
    "at-the-wake": ("--profile", "block", "--block-rate", "2"),
}
CASES = (
    (NEWEST, "all"),
    (NEWEST, "at-the-wake"),
    *in_full((NEWEST, "by-lock"), *(("1.19", recipe) for recipe in RECIPES)),
    *in_full(("1.23", "all"), ("1.24", "all")),  # the last with labels in a map, and the next
)


@pytest.mark.parametrize(("version", "chosen"), CASES)
def test_no_stack_or_label_is_another_goroutines(version: str, chosen: str, tmp_path: Path) -> None:
    recipe = RECIPES[chosen]
    own = tmp_path / "own"
    program = toolchain(version).build(RACES)
    with Target.start(program, "-blockrate=1", f"-profile={own}") as target:
        with recording(target.pid, tmp_path, *recipe) as recorder:
            target.ask("", "done")
            end(recorder)
        target.ask("", "written")
    profiles = {kind_of(path): pprof.decode(path.read_bytes()) for path in tmp_path.glob("*.gz")}
    assert set(profiles) == set(recipe[1].split(","))
    for kind, profile in profiles.items():
        assert [shown_of(sample) for sample in profile.samples if is_mixed(sample)] == []
        counts = labelled(profile.samples)
        assert set(counts) - {None} == FAMILIES, kind
        # Of goroutines that have labels, those of none are counted as unreadable.
        assert counts[None] <= lost(profile, "labels"), kind
    if "block" in profiles:
        compare(pprof.decode(own.read_bytes(), kind="block"), profiles["block"])


def compare(go: Profile, ours: Profile) -> None:
    """Only stacks that Go has, too; missing events are never more than the counted losses."""
    theirs, mine = by_stack(go), by_stack(ours)
    assert [shown(stack) for stack in set(mine) - set(theirs)] == []
    missing = {
        shown(stack): value.count - mine.get(stack, Value(0, 0)).count
        for stack, value in theirs.items()
    }
    assert [stack for stack, count in missing.items() if count < 0] == []
    assert sum(missing.values()) <= lost_events(ours) < event_count(ours) / 1000


def kind_of(path: Path) -> str:
    return path.name.removesuffix(".pb.gz").rpartition(".")[2]


def shown_of(sample: Sample) -> str:
    names = [frame.function for location in sample.locations for frame in location.frames]
    return f"{sample.values} {' < '.join(names)} {sample.labels}"


def families(sample: Sample) -> frozenset[str]:
    """Those with frames on a stack."""
    names = (frame.function for location in sample.locations for frame in location.frames)
    return FAMILIES & {name.removeprefix("main.") for name in names}


def label(sample: Sample) -> str | int | None:
    found = [each.value for each in sample.labels if each.key == "family"]
    assert len(found) <= 1
    return found[0] if found else None


def is_mixed(sample: Sample) -> bool:
    """Whether a sample is of two goroutines."""
    on_stack = families(sample)
    return len(on_stack) > 1 or (bool(on_stack) and not {label(sample)} <= {None} | on_stack)


def labelled(samples: Iterable[Sample]) -> Counter[str | int | None]:
    """Events by label, of stacks of families."""
    found: Counter[str | int | None] = Counter()
    for sample in samples:
        if families(sample):
            found[label(sample)] += sample.values[0]
    return found


def lost(profile: Profile, word: str) -> int:
    """What the comments count as lost of this kind."""
    words = [comment.split() for comment in profile.comments if comment.startswith("incomplete: ")]
    return sum(int(each[1]) for each in words if word in each)
