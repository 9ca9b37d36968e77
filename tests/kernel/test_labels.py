"""Labels of goroutines in the block and mutex profiles, against a target that knows."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.export import pprof
from ebpfprof.goruntime.goroutines import parked_goroutines
from ebpfprof.goruntime.labels import CUT, LEFT_OUT, LabelReader
from ebpfprof.goruntime.process import inspect
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.model import Kind, Label, Profile, Sample
from ebpfprof.profilers import labels
from ebpfprof.profilers.labels import key_hashes
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits.open_waits import BEGAN_BEFORE
from ebpfprof.recording.session import Session
from tests.differential.mutexes import losses, written_profiles
from tests.kernel.programs import program
from tests.recorder import only_profile, recording, run
from tests.targets_run import Target
from tests.toolchains import MINORS, toolchain

BOTH: Final[tuple[Kind, ...]] = ("block", "mutex")
# Where actors wait and release, and where those do so that have no labels.
LABELLED: Final = {"block": ("main.receive", "main.lock"), "mutex": ("main.unlock",)}
UNLABELLED: Final = {"block": "main.lockUnlabelled", "mutex": "main.unlockUnlabelled"}
FUNCTIONS: Final = (*LABELLED["block"], *LABELLED["mutex"], *UNLABELLED.values())
ACTORS: Final = 40
SETS: Final = 27
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
    with (
        Target.start(program("labels", version)) as target,
        recording(target.pid, folder, "--profile", ",".join(kinds), *arguments) as recorder,
    ):
        target.ask("go", "done")
        actors = [actor(line) for line in target.output if line.startswith("{")]
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    assert len(actors) == ACTORS
    return Run(actors, written_profiles(folder, kinds))


def actor(line: str) -> Actor:
    said = json.loads(line)
    labels = {base64.b64decode(k): base64.b64decode(v) for k, v in said["labels"]}
    return Actor(said["name"], said["rounds"], labels)


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


def assert_counts(found: Run, kind: Kind) -> None:
    whole, left_out = parted(counts(found.profiles[kind]))
    truth = expected(found.actors, kind)
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
    for each in found.actors:
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


def assert_losses(found: Run, keys: tuple[str, ...] | None = None) -> None:
    """What was cut or left out is counted: at each wait of an actor, and at each release.

    Of labels with other than these keys that is not told, if they were within reach.
    """
    events = len(found.profiles) if "block" not in found.profiles else len(found.profiles) + 1
    cut = [a for a in found.actors if a.is_cut]
    too_many = [a for a in found.actors if a.has_too_many]
    if keys is not None:
        cut = [a for a in cut if any(CUT in word for pair in a.shown(keys) for word in pair)]
        too_many = [a for a in too_many if len(a.labels) > REACH + KEPT]
    losing = {"label_cut": cut, "labels_many": too_many}
    truth = {name: sum(a.rounds for a in actors) for name, actors in losing.items() if actors}
    for profile in found.profiles.values():
        told = {}
        for loss in losses(profile):
            match = re.fullmatch(r"incomplete: (\d+) .*\((\w+)\)", loss)
            assert match, loss
            told[match[2]] = int(match[1])
        assert told == {name: events * count for name, count in truth.items()}


@pytest.mark.parametrize("version", MINORS)
def test_each_wait_and_release_has_the_labels_of_its_goroutine(
    version: str, tmp_path: Path
) -> None:
    found = record(tmp_path, version=version)
    for kind in BOTH:
        assert_counts(found, kind)
    assert_losses(found)


@pytest.mark.parametrize("version", MINORS)
def test_who_still_waits_is_shown_with_the_labels_of_its_goroutine(
    version: str, tmp_path: Path
) -> None:
    """Also who waited before: they are read from the target's memory."""
    with Target.start(program("labels", version)) as target:
        target.ask("hold", "done")
        arguments = ("--profile", "block", "--open", "-d", "0.1")
        finished = run("--pid", str(target.pid), *arguments, folder=tmp_path)
        assert finished.code == 0, finished.stderr
        target.ask("let go", "done")
        actors = [actor(line) for line in target.output if line.startswith("{")]
    assert len(actors) == ACTORS

    (path,) = tmp_path.glob("*.open.pb.gz")
    profile = pprof.decode(path.read_bytes(), kind="open")
    whole, left_out = parted(counts(without(profile, BEGAN_BEFORE)))
    assert whole == Counter(("main.receive", a.shown()) for a in actors if not a.has_too_many)
    assert Counter(labels_left_out(at[1]) + KEPT for at in left_out.elements()) == Counter(
        len(a.labels) for a in actors if a.has_too_many
    )
    for _, shown in left_out:
        kept = {(key, value) for key, value in shown if key != LEFT_OUT}
        assert len(kept) == KEPT
        assert kept <= numbered(KEPT + labels_left_out(shown))
    assert losses(profile) == []


@pytest.mark.parametrize("version", ["1.23", "1.27"])
def test_who_still_waits_with_labels_that_cannot_be_read_is_counted(
    version: str, tmp_path: Path
) -> None:
    """A program can keep what it likes there."""
    with Target.start(program("labels", version)) as target, Process(target.pid) as process:
        target.ask("hold", "done")
        go = inspect(process)
        (g,) = [
            each.address
            for each in parked_goroutines(go, has_labels=True).goroutines
            if Label("request", "second") in (each.labels or ())
        ]
        with Path(f"/proc/{target.pid}/mem").open("r+b", buffering=0) as memory:
            memory.seek(g + go.binary.layout.offset("g", "labels"))
            memory.write((8).to_bytes(8, "little"))  # nothing is ever mapped there
        arguments = ("--profile", "block", "--open", "-d", "0.1")
        finished = run("--pid", str(target.pid), *arguments, folder=tmp_path)
    assert finished.code == 0, finished.stderr
    (path,) = tmp_path.glob("*.open.pb.gz")
    profile = pprof.decode(path.read_bytes(), kind="open")
    (lost,) = losses(profile)
    assert re.fullmatch(r"incomplete: 1 .*\(labels_unread\)", lost), lost
    found = counts(without(profile, BEGAN_BEFORE))
    assert found.total() == ACTORS
    assert found["main.receive", frozenset({("request", "second")})] == 0


def test_one_that_wakes_while_its_labels_are_read_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Target.start(program("labels")) as target, Process(target.pid) as process:
        target.ask("hold", "done")
        let_go: list[str] = []
        read = LabelReader.read

        def read_and_let_go(reader: LabelReader, address: int) -> tuple[Label, ...]:
            found = read(reader, address)
            if found and not let_go:
                let_go.append(target.ask("let go", "done"))
            return found

        monkeypatch.setattr(LabelReader, "read", read_and_let_go)
        parked = parked_goroutines(inspect(process), has_labels=True)
    assert let_go
    assert [each.labels for each in parked.goroutines if each.labels != ()] == []


def without(profile: Profile, label: Label) -> Profile:
    """The same, of which all samples had this label, without it."""
    assert all(label in sample.labels for sample in profile.samples)
    samples = (
        replace(sample, labels=tuple(each for each in sample.labels if each != label))
        for sample in profile.samples
    )
    return replace(profile, samples=tuple(samples))


@pytest.mark.parametrize("version", ["1.23", "1.27"])
@pytest.mark.parametrize(
    ("kinds", "arguments"),
    [
        (("mutex",), ()),
        (("block",), ("--block-rate", "1000")),  # no wait is as short
        (BOTH, ("--block-rate", "1000")),
        (BOTH, ("--by-lock",)),
        (("mutex",), ("--by-lock",)),
        (("mutex",), ("--runtime-locks",)),
    ],
)
def test_other_ways_to_record_have_the_same_labels(
    version: str, kinds: tuple[Kind, ...], arguments: tuple[str, ...], tmp_path: Path
) -> None:
    found = record(tmp_path, *arguments, version=version, kinds=kinds)
    for kind in kinds:
        assert_counts(found, kind)


@pytest.mark.parametrize("version", ["1.25", "1.27"])
def test_releases_of_locks_of_the_runtime_have_labels(version: str, tmp_path: Path) -> None:
    with (
        Target.start(program("labels", version)) as target,
        recording(target.pid, tmp_path, "--profile", "mutex", "--runtime-locks") as recorder,
    ):
        target.ask("crowd", "done")
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    seen = Counter(
        labels_of(sample)
        for sample in only_profile(tmp_path).samples
        if "main.sendAndReceive" in functions(sample)
    )
    assert set(seen) == {frozenset({("in", "crowd")})}


def test_stacks_are_the_same_whatever_the_labels(tmp_path: Path) -> None:
    found = record(tmp_path)
    for kind, profile in found.profiles.items():
        function = LABELLED[kind][0]
        for value in ("first", "second"):
            (sample,) = [
                each
                for each in profile.samples
                if labels_of(each) == {("request", value)} and function in functions(each)
            ]
            same = [each for each in profile.samples if each.locations == sample.locations]
            assert len(same) > 10
            assert len({labels_of(each) for each in same}) == len(same)


def test_without_labels_equal_stacks_are_one(tmp_path: Path) -> None:
    found = record(tmp_path, "--labels", "none")
    for kind, profile in found.profiles.items():
        assert counts(profile) == expected(found.actors, kind, keys=())
        stacks = [sample.locations for sample in profile.samples]
        assert len(set(stacks)) == len(stacks)
        assert losses(profile) == []


@pytest.mark.parametrize(
    "named",
    [
        *(("request",), ("by", "depth"), ("no such key",)),
        *(("k" * KEY_BYTES, "k"), ("k" * KEY_BYTES + CUT,)),
    ],
)
def test_only_labels_with_the_keys_that_were_asked_for(
    named: tuple[str, ...], tmp_path: Path
) -> None:
    found = record(tmp_path, "--labels", ",".join(named))
    for kind, profile in found.profiles.items():
        assert counts(profile) == expected(found.actors, kind, keys=named)
        seen = [(sample.locations, labels_of(sample)) for sample in profile.samples]
        assert len(set(seen)) == len(seen)
    if key_hashes(named):
        assert_losses(found, named)


def test_the_labels_of_the_lock_stand_beside_those_of_the_goroutine(tmp_path: Path) -> None:
    found = record(tmp_path, "--lock-labels")
    of_lock = {"lock", "lock_address"}
    for kind, profile in found.profiles.items():
        seen = Counter[tuple[str, Labels]]()
        for (function, shown), count in counts(profile).items():
            keys = {key for key, _ in shown}
            assert ("lock_address" in keys) == (function != "main.receive")
            seen[function, frozenset((k, v) for k, v in shown if k not in of_lock)] += count
        whole, _ = parted(seen)
        few = [each for each in found.actors if not each.has_too_many]
        truth = expected(few, kind)
        assert all(whole[at] == truth[at] for at in truth if at[1])


def test_pprof_reads_the_labels(tmp_path: Path) -> None:
    found = record(tmp_path, kinds=("block",))
    (path,) = tmp_path.glob("*.block.pb.gz")
    tags = toolchain("1.27").go("tool", "pprof", "-tags", path.name, cwd=tmp_path)
    shown = set(re.findall(r"^ *(\S+): Total", tags, re.M))
    assert {"tenant", "request", "attempt", "by", "depth", "ключ", LEFT_OUT} <= shown
    assert "empty" not in shown
    assert len(found.actors) == ACTORS


def record_here(version: str) -> tuple[list[Actor], list[Profile], dict[str, int]]:
    """The same as record() in this process; and what was lost, by name."""
    with (
        Target.start(program("labels", version)) as target,
        Session([target.pid], Options(kinds=BOTH)) as session,
    ):
        session.start()
        target.ask("go", "done")
        actors = [actor(line) for line in target.output if line.startswith("{")]
        (report,) = session.finish()
        return actors, report.profiles, {loss.name: loss.count for loss in session.losses()}


@pytest.mark.parametrize("version", ["1.23", "1.27"])
def test_each_set_takes_room_once(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MAX_LABEL_SETS", SETS)
    actors, _, lost = record_here(version)
    assert len({frozenset(each.labels.items()) for each in actors if each.labels}) == SETS
    assert "label_sets_full" not in lost


def test_more_sets_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    room = 4
    monkeypatch.setattr(labels, "MAX_LABEL_SETS", room)
    actors, profiles, lost = record_here("1.27")
    for profile in profiles:
        whole = counts(profile)
        truth = expected(actors, profile.kind)
        for function in FUNCTIONS:
            seen = {at: n for at, n in whole.items() if at[0] == function and at[1]}
            assert len(seen) <= room
            assert seen.items() <= truth.items()
        assert sum(whole.values()) == sum(truth.values())
    labelled = sum(each.rounds for each in actors if each.labels)
    with_labels = sum(
        sample.values[0]
        for profile in profiles
        for sample in profile.samples
        if sample.labels and functions(sample) & set(FUNCTIONS)
    )
    # One more waits for a goroutine that has its labels from it.
    assert lost["label_sets_full"] == 3 * labelled - with_labels + 1


@pytest.mark.parametrize("named", ["all,none", "none,request", "request,", ""])
def test_what_does_not_go_together_is_said(named: str, tmp_path: Path) -> None:
    finished = run("--pid", "1", "--labels", named, folder=tmp_path)
    assert finished.code == 2
    assert "--labels" in finished.stderr
    assert finished.stdout == b""
