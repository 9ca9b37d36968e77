"""Labels that are not in the target's memory when an event wants them."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from ebpfprof.profile.model import Profile
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from tests.builds import in_full, versions
from tests.differential.mutexes import losses
from tests.kernel.labelled_runs import NO_LABELS, Labels, functions, labels_of
from tests.kernel.programs import program
from tests.kernel.unanswered import unanswered
from tests.recorder import Recorder, only_profile, recording
from tests.targets_run import DEADLINE_S, Target

# A traceback, which the target takes of itself, has labels from Go 1.27 on.
UNREAD: Final = {"GODEBUG": "tracebacklabels=0"}
ROUNDS: Final = 20
READS: Final = ("310", "17")  # process_vm_readv, pread64: arch/x86/entry/syscalls/syscall_64.tbl


def unread_labels(profile: Profile, function: str) -> Counter[Labels]:
    """How much of what a function did has which labels."""
    found: Counter[Labels] = Counter()
    for sample in profile.samples:
        if function in functions(sample):
            found[labels_of(sample)] += sample.values[0]
    return found


@pytest.mark.parametrize("version", versions("1.23", "1.27"))
def test_labels_on_unread_pages_are_lost_once(version: str) -> None:
    """The page of the labels is not in its memory; a read from outside brings it in."""
    waits = frozenset({("unread", "waits")})
    options = Options(kinds=("block",), max_overhead=0)
    with (
        Target.start(program("labels", version), env=UNREAD) as running,
        LiveSession(options) as live,
    ):
        target = live.add(running.pid)
        live.start(target)
        running.ask("unread", "done")
        until = monotonic() + DEADLINE_S
        found = Counter[Labels]()
        while not found[waits]:
            assert monotonic() < until, found
            running.ask("next", "done")
            (profile,) = live.report(live.sums(target)).profiles
            found = unread_labels(profile, "main.receive")
        lost = {loss.name: loss.count for loss in live.losses()}
        assert lost.keys() == {"labels_unreadable"}
        for _ in range(10):
            running.ask("next", "done")
        assert {loss.name: loss.count for loss in live.losses()} == lost


@pytest.mark.full
def test_attach_reads_pages_with_unread_labels(tmp_path: Path) -> None:
    """In the block profile and in the CPU profile: the labels of each are on another page."""
    for kind, begin, function, go_on in (
        ("block", "unread", "main.receive", "next"),
        ("cpu", "spin", "main.spinUnread", "crowd"),
    ):
        folder = tmp_path / kind
        folder.mkdir()
        with (
            Target.start(program("labels"), env=UNREAD) as target,
            recording(target.pid, folder, "--profile", kind) as recorder,
        ):
            target.ask(begin, "done")
            until = monotonic() + 1
            while monotonic() < until:
                target.ask(go_on, "done")
            recorder.interrupt()
            assert recorder.finish().code == 0
        profile = only_profile(folder)
        found = unread_labels(profile, function)
        labelled = {labels for labels in found if labels}
        assert len(labelled) == 1, found
        assert found[NO_LABELS] < found.total() / 2
        (lost,) = losses(profile)
        assert re.fullmatch(r"incomplete: \d+ .*\(labels_unreadable\)", lost), lost


def test_unreadable_labels_stay_lost_and_are_counted(tmp_path: Path) -> None:
    with (
        Target.start(program("labels"), env=UNREAD) as target,
        recording(target.pid, tmp_path) as recorder,
    ):
        target.ask("unreadable", "done")
        until = monotonic() + 0.5
        rounds = 0
        while monotonic() < until:
            target.ask("next", "done")
            rounds += 1
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    profile = only_profile(tmp_path)
    assert unread_labels(profile, "main.receive") == {NO_LABELS: rounds}
    (lost,) = losses(profile)
    assert lost.startswith(f"incomplete: {rounds + 1} ")  # it waits at the end, too


@pytest.mark.parametrize("arguments", [(), *in_full((("--open",),))])
def test_a_label_on_a_silent_file_system_does_not_block_the_target(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """A read of /proc/PID/mem keeps the target from changing its mappings meanwhile."""
    file, folder = tmp_path / "file", tmp_path / "written"
    folder.mkdir()
    with (
        unanswered(file) as over,
        Target.start(program("labels"), str(file), env=UNREAD) as target,
        recording(target.pid, folder, *arguments) as recorder,
    ):
        target.ask("unreadable", "done")
        go_on_while_it_begins_to_wait(target, recorder, "next")
        recorder.interrupt()
        if arguments:  # what it reads at the end
            go_on_while_it_begins_to_wait(target, recorder, "map", only_main=True)
        over.set()
        finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    assert "(labels_unreadable)" in finished.stderr


def go_on_while_it_begins_to_wait(
    target: Target, recorder: Recorder, word: str, *, only_main: bool = False
) -> None:
    """Let the target obey and map memory while a thread of the profiler does nothing but read."""
    until = monotonic() + DEADLINE_S
    waited = 0  # in a row: a thread may read for a moment that does not wait
    while waited < ROUNDS:
        assert monotonic() < until, "the profiler does not wait"
        target.ask(word, "done")
        target.ask("map", "done")
        tids = [recorder.pid] if only_main else list(map(int, os.listdir(tasks(recorder))))
        waited = waited + 1 if any(map(reads, tids)) else 0


def reads(tid: int) -> bool:
    """Whether a thread is in a system call that reads another process's memory."""
    try:
        return Path(f"/proc/{tid}/syscall").read_text().split()[0] in READS
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return False


def tasks(recorder: Recorder) -> str:
    return f"/proc/{recorder.pid}/task"
