"""Labels of goroutines in the block and mutex profiles, against a target that knows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.goruntime.goroutines.labels import CUT, LEFT_OUT
from ebpfprof.profile.model import Kind, Profile
from ebpfprof.profilers import labels
from ebpfprof.profilers.labels import key_hashes
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from tests.builds import NEWEST, in_full, versions
from tests.differential.mutexes import losses
from tests.kernel.labelled_runs import (
    ACTORS,
    BOTH,
    FUNCTIONS,
    KEY_BYTES,
    LABELLED,
    Actor,
    Labels,
    Run,
    actor,
    assert_counts,
    assert_losses,
    counts,
    expected,
    functions,
    labels_of,
    parted,
    record,
    record_together,
)
from tests.kernel.programs import program
from tests.recorder import only_profile, recording, run
from tests.targets_run import Target
from tests.toolchains import toolchain

SETS: Final = 27
RATED: Final = ("--block-rate", "1000")  # no wait is as short
NAMED: Final = ("k" * KEY_BYTES, "k")
TOGETHER: Final[tuple[tuple[str, ...], ...]] = (
    (),
    ("--labels", "none"),
    ("--labels", ",".join(NAMED)),
    RATED,
)
"""The arguments of recordings of one performance, by the newest Go."""

Runs = Mapping[tuple[str, ...], Run]
"""Those recordings, by their arguments."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the profiles of the first of those recordings."""
    return tmp_path_factory.mktemp("labels")


@pytest.fixture(scope="module")
def recorded(written: Path) -> Runs:
    return dict(zip(TOGETHER, record_together(written, TOGETHER, NEWEST), strict=True))


def run_of(
    recorded: Runs,
    folder: Path,
    *arguments: str,
    version: str = NEWEST,
    kinds: tuple[Kind, ...] = BOTH,
) -> Run:
    """The recording with these arguments, a new one in `folder` if there is none yet."""
    if (version, kinds) == (NEWEST, BOTH) and arguments in recorded:
        return recorded[arguments]
    return record(folder, *arguments, version=version, kinds=kinds)


@pytest.mark.parametrize("version", versions())
def test_each_wait_and_release_has_the_labels_of_its_goroutine(
    version: str, recorded: Runs, tmp_path: Path
) -> None:
    found = run_of(recorded, tmp_path, version=version)
    for kind in BOTH:
        assert_counts(found, kind)
    assert_losses(found)


@pytest.mark.parametrize("version", versions("1.23", "1.27"))
@pytest.mark.parametrize(
    ("kinds", "arguments"),
    [
        (BOTH, RATED),
        *in_full(
            (("mutex",), ("--by-lock",)),
            (("mutex",), ()),
            (("block",), RATED),
            (BOTH, ("--by-lock",)),
            (("mutex",), ("--runtime-locks",)),
        ),
    ],
)
def test_every_recording_mode_has_the_same_labels(
    version: str,
    kinds: tuple[Kind, ...],
    arguments: tuple[str, ...],
    recorded: Runs,
    tmp_path: Path,
) -> None:
    found = run_of(recorded, tmp_path, *arguments, version=version, kinds=kinds)
    for kind in kinds:
        assert_counts(found, kind)


@pytest.mark.full
@pytest.mark.parametrize("version", versions("1.25", "1.27"))
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


def test_stacks_do_not_depend_on_labels(recorded: Runs) -> None:
    found = recorded[()]
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


def test_without_labels_equal_stacks_are_merged(recorded: Runs) -> None:
    found = recorded["--labels", "none"]
    for kind, profile in found.profiles.items():
        assert counts(profile) == expected(found.actors, kind, keys=())
        stacks = [sample.locations for sample in profile.samples]
        assert len(set(stacks)) == len(stacks)
        assert losses(profile) == []


@pytest.mark.parametrize(
    "named",
    [
        NAMED,
        *in_full(*((keys,) for keys in (("by", "depth"), ("k" * KEY_BYTES + CUT,), ("request",)))),
    ],
)
def test_only_labels_with_the_chosen_keys_are_recorded(
    named: tuple[str, ...], recorded: Runs, tmp_path: Path
) -> None:
    found = run_of(recorded, tmp_path, "--labels", ",".join(named))
    for kind, profile in found.profiles.items():
        assert counts(profile) == expected(found.actors, kind, keys=named)
        seen = [(sample.locations, labels_of(sample)) for sample in profile.samples]
        assert len(set(seen)) == len(seen)
    if key_hashes(named):
        assert_losses(found, named)


@pytest.mark.full
def test_lock_labels_stand_beside_goroutine_labels(tmp_path: Path) -> None:
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


def test_pprof_reads_the_labels(recorded: Runs, written: Path) -> None:
    (path,) = written.glob("*.block.pb.gz")
    tags = toolchain("1.27").go("tool", "pprof", "-tags", path.name, cwd=written)
    shown = set(re.findall(r"^ *(\S+): Total", tags, re.M))
    assert {"tenant", "request", "attempt", "by", "depth", "ключ", LEFT_OUT} <= shown
    assert "empty" not in shown
    assert len(recorded[()].actors) == ACTORS


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


@pytest.mark.full
@pytest.mark.parametrize("version", versions("1.23", "1.27"))
def test_equal_label_sets_share_an_entry(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MAX_LABEL_SETS", SETS)
    actors, _, lost = record_here(version)
    assert len({frozenset(each.labels.items()) for each in actors if each.labels}) == SETS
    assert "label_sets_full" not in lost


@pytest.mark.full
def test_label_sets_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_conflicting_label_keys_are_refused(named: str, tmp_path: Path) -> None:
    finished = run("--pid", "1", "--labels", named, folder=tmp_path)
    assert finished.code == 2
    assert "--labels" in finished.stderr
    assert finished.stdout == b""
