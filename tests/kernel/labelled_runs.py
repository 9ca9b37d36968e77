"""Recordings of the target `labels`, and what its profiles should hold by labels."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ebpfprof.goruntime.goroutines.labels import CUT, LEFT_OUT
from ebpfprof.profile.model import Kind, Profile, Sample
from tests.differential.mutexes import losses, written_profiles
from tests.kernel.programs import program
from tests.recorder import recording
from tests.targets_run import Target

BOTH: Final[tuple[Kind, ...]] = ("block", "mutex")
# Where actors wait and release, and where those do so that have no labels.
LABELLED: Final = {"block": ("main.receive", "main.lock"), "mutex": ("main.unlock",)}
UNLABELLED: Final = {"block": "main.lockUnlabelled", "mutex": "main.unlockUnlabelled"}
FUNCTIONS: Final = (*LABELLED["block"], *LABELLED["mutex"], *UNLABELLED.values())
ACTORS: Final = 40
# How much is kept of a set, of a key and of a value: bpf/common/labels.h.
KEPT: Final = 8
REACH: Final = 20  # of a set in a slice, as Go 1.24 and newer have it
KEY_BYTES: Final = 64
VALUE_BYTES: Final = 128
Labels = frozenset[tuple[str, str]]
NO_LABELS: Final[Labels] = frozenset()


@dataclass(frozen=True)
class Actor:
    """What a goroutine of the target did, and the labels that it had, as Go has them."""

    name: str
    rounds: int
    labels: dict[bytes, bytes]

    @property
    def has_too_many(self) -> bool:
        return len(self.labels) > KEPT

    @property
    def is_cut(self) -> bool:
        return any(len(k) > KEY_BYTES or len(v) > VALUE_BYTES for k, v in self.labels.items())

    def shown(self, keys: Iterable[str] | None = None) -> Labels:
        """How a profile shows these labels, or those of them with one of the keys."""
        pairs = ((text(k, KEY_BYTES), text(v, VALUE_BYTES)) for k, v in self.labels.items())
        return frozenset((k, v) for k, v in pairs if v and (keys is None or k in keys))


def text(data: bytes, limit: int) -> str:
    if len(data) <= limit:
        return data.decode(errors="backslashreplace")
    return data[:limit].decode(errors="ignore") + CUT


@dataclass(frozen=True)
class Run:
    """What was recorded of one performance, and what the target says of it."""

    actors: list[Actor]
    profiles: dict[Kind, Profile]


def record(
    folder: Path, *arguments: str, version: str = "1.27", kinds: tuple[Kind, ...] = BOTH
) -> Run:
    return record_together(folder, [arguments], version, kinds)[0]


def record_together(
    folder: Path,
    chosen: Sequence[Sequence[str]],
    version: str = "1.27",
    kinds: tuple[Kind, ...] = BOTH,
) -> list[Run]:
    """Record one performance several times at once, each with other arguments.

    Each recording but the first has a folder of its own in `folder`.
    """
    folders = [folder, *(folder / str(number) for number in range(1, len(chosen)))]
    with ExitStack() as held:
        target = held.enter_context(Target.start(program("labels", version)))
        recorders = []
        for own, arguments in zip(folders, chosen, strict=True):
            own.mkdir(exist_ok=True)
            named = ("--profile", ",".join(kinds), *arguments)
            recorders.append(held.enter_context(recording(target.pid, own, *named)))
        target.ask("go", "done")
        actors = [actor(line) for line in target.output if line.startswith("{")]
        for recorder in recorders:
            recorder.interrupt()
        for recorder in recorders:
            finished = recorder.finish()
            assert finished.code == 0, finished.stderr
    assert len(actors) == ACTORS
    return [Run(actors, written_profiles(own, kinds)) for own in folders]


def actor(line: str) -> Actor:
    output = json.loads(line)
    labels = {base64.b64decode(k): base64.b64decode(v) for k, v in output["labels"]}
    return Actor(output["name"], output["rounds"], labels)


def functions(sample: Sample) -> set[str]:
    return {frame.function for at in sample.locations for frame in at.frames}


def labels_of(sample: Sample) -> Labels:
    assert len({label.key for label in sample.labels}) == len(sample.labels)
    return frozenset((label.key, str(label.value)) for label in sample.labels)


def counts(profile: Profile) -> Counter[tuple[str, Labels]]:
    """How often each function waited or released, by labels."""
    found: Counter[tuple[str, Labels]] = Counter()
    for sample in profile.samples:
        for function in functions(sample) & set(FUNCTIONS):
            found[function, labels_of(sample)] += sample.values[0]
    return found


def expected(
    actors: list[Actor], kind: Kind, keys: Iterable[str] | None = None
) -> Counter[tuple[str, Labels]]:
    """What counts() should return; `keys` are those asked for, None for all."""
    found: Counter[tuple[str, Labels]] = Counter()
    for each in actors:
        shown = each.shown(keys)
        for function in LABELLED[kind]:
            found[function, shown] += each.rounds
        found[UNLABELLED[kind], NO_LABELS] += each.rounds
    return found


def parted(
    found: Counter[tuple[str, Labels]],
) -> tuple[Counter[tuple[str, Labels]], Counter[tuple[str, Labels]]]:
    """Those with all their labels, and those of which some were left out."""
    left_out = Counter({at: n for at, n in found.items() if LEFT_OUT in dict(at[1])})
    return found - left_out, left_out


def assert_counts(run: Run, kind: Kind) -> None:
    whole, left_out = parted(counts(run.profiles[kind]))
    truth = expected(run.actors, kind)
    for at in list(truth):
        if len(at[1]) > KEPT:
            del truth[at]
    assert whole == truth
    sums: Counter[tuple[str, int]] = Counter()
    for (function, shown), count in left_out.items():
        numbers = dict(shown)
        missing = int(numbers.pop(LEFT_OUT))
        total = len(numbers) + missing
        assert len(numbers) == KEPT
        assert numbers.items() <= dict(numbered(total)).items()
        sums[function, total] += count
    many: Counter[tuple[str, int]] = Counter()
    for each in run.actors:
        if each.has_too_many:
            assert each.shown() == numbered(len(each.labels))
            for function in LABELLED[kind]:
                many[function, len(each.labels)] += each.rounds
    assert sums == many
    # The same labels, whatever their order, are one set.
    few = [(at[0], labels_left_out(at[1])) for at in left_out if labels_left_out(at[1]) <= 5]
    assert len(few) == len(set(few))
    assert {count for _, count in few} == {9 - KEPT, 12 - KEPT, 13 - KEPT}


def labels_left_out(labels: Labels) -> int:
    return int(dict(labels)[LEFT_OUT])


def numbered(count: int) -> Labels:
    return frozenset((f"key{n:03}", f"value {n}") for n in range(count))


def assert_losses(run: Run, keys: tuple[str, ...] | None = None) -> None:
    """What was cut or left out is counted: at each wait of an actor, and at each release.

    Labels with other keys are not reported if they could be read.
    """
    events = len(run.profiles) if "block" not in run.profiles else len(run.profiles) + 1
    cut = [a for a in run.actors if a.is_cut]
    too_many = [a for a in run.actors if a.has_too_many]
    if keys is not None:
        cut = [a for a in cut if any(CUT in word for pair in a.shown(keys) for word in pair)]
        too_many = [a for a in too_many if len(a.labels) > REACH + KEPT]
    losing = {"label_cut": cut, "labels_many": too_many}
    truth = {name: sum(a.rounds for a in actors) for name, actors in losing.items() if actors}
    for profile in run.profiles.values():
        reported = {}
        for loss in losses(profile):
            match = re.fullmatch(r"incomplete: (\d+) .*\((\w+)\)", loss)
            assert match, loss
            reported[match[2]] = int(match[1])
        assert reported == {name: events * count for name, count in truth.items()}
