"""Labels of goroutines that still wait when the recording ends."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.goruntime.goroutines.labels import LEFT_OUT
from ebpfprof.goruntime.goroutines.parked import parked_goroutines
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.model import Label, Profile
from ebpfprof.profilers.waits.open_waits import BEGAN_BEFORE
from tests.builds import versions
from tests.differential.mutexes import losses
from tests.go_target import inspect
from tests.kernel.acting_process import ActingProcess
from tests.kernel.labelled_runs import (
    ACTORS,
    KEPT,
    actor,
    counts,
    labels_left_out,
    numbered,
    parted,
)
from tests.kernel.programs import program
from tests.recorder import run
from tests.targets_run import Target


@pytest.mark.parametrize("version", versions())
def test_open_waits_have_the_labels_of_their_goroutines(version: str, tmp_path: Path) -> None:
    """Also of goroutines that waited before: their labels are read from the target's memory."""
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


@pytest.mark.parametrize("version", versions("1.23", "1.27"))
def test_open_waits_with_unreadable_labels_are_counted(version: str, tmp_path: Path) -> None:
    """A program can store any value as labels."""
    with Target.start(program("labels", version)) as target, Process(target.pid) as process:
        target.ask("hold", "done")
        go = inspect(process)
        (g,) = [
            goroutine.address
            for goroutine in parked_goroutines(go, has_labels=True).goroutines
            if Label("request", "second") in (goroutine.labels or ())
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


def test_a_goroutine_woken_while_labels_are_read_is_not_shown() -> None:
    with Target.start(program("labels")) as target:
        target.ask("hold", "done")
        let_go: list[str] = []

        def behind(_: int, data: bytes) -> None:
            if data.startswith(b"request") and not let_go:  # the key of a label
                let_go.append(target.ask("let go", "done"))

        with ActingProcess(target.pid, behind) as process:
            parked = parked_goroutines(inspect(process), has_labels=True)
    assert let_go
    assert [goroutine.labels for goroutine in parked.goroutines if goroutine.labels != ()] == []


def without(profile: Profile, label: Label) -> Profile:
    """The same, of which all samples had this label, without it."""
    assert all(label in sample.labels for sample in profile.samples)
    samples = (
        replace(sample, labels=tuple(each for each in sample.labels if each != label))
        for sample in profile.samples
    )
    return replace(profile, samples=tuple(samples))
