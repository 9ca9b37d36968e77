"""Who woke whom, of real programs: within a bound, with losses, and what users see of it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.wakers import UNKNOWN_WAKER, waiter_of, waker_of
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.target_layout import target_fields
from ebpfprof.profilers.waits import collector
from ebpfprof.profilers.waits.pair_table import PairTable
from ebpfprof.profilers.waits.rows import KnownStack
from ebpfprof.recording.session import Session
from tests.differential.stacks import by_stack
from tests.kernel import labelled_runs
from tests.kernel.programs import program
from tests.kernel.woken_runs import counts_by_pair, record
from tests.recorder import names_in, recording
from tests.targets_run import Target

FEW = "-only=^(chanRecv1|chanSend|mutexLock|timerRecv)$"
WAKERS = Options(kinds=("block", "wakers"))


@pytest.mark.full
def test_pairs_without_room_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MAX_PAIRS", 3)
    run = record(tmp_path, FEW, options=WAKERS)
    assert set(run.lost) == {"pairs_full"}
    pairs, block = by_stack(run.waiters), by_stack(run.ours["block"])
    assert 0 < len(pairs) < len(block)
    missing = sum(v.count for v in block.values()) - sum(v.count for v in pairs.values())
    # The runtime's own semaphores are among the losses, and not among the waits.
    assert missing <= run.lost["pairs_full"] < missing + 50
    assert any("pairs_full" in comment for comment in run.ours["wakers"].comments)
    assert not any("pairs_full" in comment for comment in run.ours["block"].comments)


def test_a_waker_that_cannot_be_read_still_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misread(*arguments: Any, **values: Any) -> dict[str, Any]:  # noqa: ANN401 - passed on
        return {**target_fields(*arguments, **values), "sched_bp_offset": 8}  # the end of the stack

    monkeypatch.setattr(collector, "target_fields", misread)
    run = record(tmp_path, FEW, options=WAKERS)
    assert by_stack(run.waiters) == by_stack(run.ours["block"])
    assert set(run.lost) == {"waker_unreadable"}
    assert any("waker_unreadable" in comment for comment in run.ours["wakers"].comments)
    assert not any("waker_unreadable" in comment for comment in run.ours["block"].comments)
    unknown = [s for s in run.ours["wakers"].samples if s.locations[-1] == UNKNOWN_WAKER]
    # Only timers have another stack: that of their thread.
    wakes = sum(sample.values[0] for sample in run.ours["wakers"].samples)
    assert sum(sample.values[0] for sample in unknown) == wakes - run.planned["timerRecv"]


@pytest.mark.full
def test_within_a_bound_pairs_make_up_the_estimate_and_have_errors() -> None:
    options = Options(kinds=("block", "wakers"), max_overhead=1)
    with Target.start(program("pingpong"), "-sends=4000000") as target:
        with Session([target.pid], options) as session, ThreadPoolExecutor(1) as pool:
            session.start()
            done = pool.submit(target.ask, "go", "ns ")
            session.wait(inf, lambda _: done.done())
            (report,) = session.finish()
        block, wakers = report.profiles
    assert report.coverage
    assert report.coverage.is_scaled
    sums: Counter[Any] = Counter()
    for sample in wakers.samples:
        sums[waiter_of(sample).locations] += sample.values[1]
    waited = {sample.locations: sample.values[1] for sample in block.samples}
    assert sums.keys() == waited.keys()
    assert all(abs(sums[stack] - waited[stack]) <= len(wakers.samples) for stack in sums)
    longest = max(wakers.samples, key=lambda sample: sample.values[1])
    assert longest.variance > 0
    assert any("split among them as the recorded waits are" in text for text in wakers.comments)
    reported = [
        text for text in wakers.comments if text.endswith(" on delays (one standard error)")
    ]
    assert reported == [
        text for text in block.comments if text.endswith(" on delays (one standard error)")
    ]
    # Two functions that only wake each other.
    known = [sample for sample in wakers.samples if sample.locations[-1] != UNKNOWN_WAKER]
    waits = {"main.produce": "main.consume", "main.consume": "main.produce"}
    for sample in known:
        by = waker_of(sample)
        assert by
        names = {frame.function for frame in waiter_of(sample).frames}
        (waiting,) = names & waits.keys()
        assert waits[waiting] in {frame.function for frame in by.frames}


@pytest.mark.full
def test_labels_are_those_of_what_waited(tmp_path: Path) -> None:
    """Locks that are released by another goroutine, which has labels of its own or none."""
    found = labelled_runs.record(tmp_path, kinds=("block", "mutex", "wakers"))
    sums: dict[str, Counter[Any]] = {"block": Counter(), "wakers": Counter()}
    for kind, by_labels in sums.items():
        for sample in found.profiles[kind].samples:
            by_labels[waiter_of(sample).locations, sample.labels] += sample.values[1]
    assert sums["wakers"] == sums["block"]
    assert len({labels for _, labels in sums["wakers"]}) > len(found.actors) / 2


@pytest.mark.full
def test_the_kernel_keeps_one_pair_whatever_labels_the_waker_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or there would be a pair for each combination, and soon no room for others."""
    pairs: list[KnownStack] = []
    sums = PairTable.sums

    def noted(table: PairTable) -> Iterator[tuple[int, KnownStack, int, int]]:
        found = list(sums(table))
        pairs[:] = [pair for _, pair, _, _ in found]
        return iter(found)

    monkeypatch.setattr(PairTable, "sums", noted)
    options = Options(kinds=("block", "mutex", "wakers"))
    with (
        Target.start(program("labels")) as target,
        Session([target.pid], options) as session,
    ):
        session.start()
        target.ask("go", "done")
        (report,) = session.finish()
    profiles = {profile.kind: profile for profile in report.profiles}
    waited = [sample for sample in profiles["wakers"].samples if not sample.labels]
    mutex = profiles["mutex"].samples
    released = [each for each in mutex if "main.unlock" in labelled_runs.functions(each)]
    assert len({each.labels for each in released}) > labelled_runs.ACTORS / 2
    assert len(pairs) > labelled_runs.ACTORS
    unlabelled = [pair for pair in pairs if not pair.labels]  # two of the others may be cut alike
    assert any("main.lockUnlabelled" in each for each in map(labelled_runs.functions, waited))
    assert len(unlabelled) == len(set(unlabelled))


def test_attach_shows_who_woke_whom_and_report_and_diff_read_it(tmp_path: Path) -> None:
    with (
        Target.start(program("blockops"), FEW) as target,
        recording(target.pid, tmp_path, "--wakers", "--profile", "block") as recorder,
    ):
        target.ask("go", "done")
        recorder.interrupt()
        finished = recorder.finish()
    assert names_in(tmp_path) == {f"blockops-{target.pid}.{k}.pb.gz" for k in ("block", "wakers")}
    assert (finished.code, "and what ended them:" in finished.stdout.decode()) == (0, True)
    (path,) = tmp_path.glob("*.wakers.pb.gz")
    pairs = counts_by_pair(pprof.decode(path.read_bytes()))
    assert pairs["main.chanRecv1.func1", "main.chanRecv1.func2"] == 47
    assert pairs["main.mutexLock.func1", "main.mutexLock"] == 39
    report = ebpfprof("report", path)
    table = report.partition("Who waited")[2].splitlines()
    (row,) = [line for line in table if "main.chanRecv1.func1" in line]
    assert row.split()[2:] == ["47", "main.chanRecv1.func1", "main.chanRecv1.func2"]
    assert "Who waited" in report
    assert "Woken by" in report
    assert "No place in the program differs." in ebpfprof("diff", path, path)


def ebpfprof(*arguments: str | Path) -> str:
    """What the command prints; it must succeed."""
    command = [sys.executable, "-m", "ebpfprof", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout
