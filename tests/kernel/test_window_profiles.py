"""Profiles of a target of which not every wait is recorded: like Go's own, and complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.goruntime.goroutines.labels import LabelReader
from ebpfprof.goruntime.samples.sampler import GoroutineSampler
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.model import Label
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from tests.bench.workloads import WORKLOADS, Running
from tests.builds import in_full, versions
from tests.differential.mutexes import losses
from tests.kernel.kernel_state import has_probes, probed
from tests.kernel.programs import program
from tests.kernel.tampered import command
from tests.kernel.windowed_runs import (
    LENGTH_S,
    MUCH,
    Run,
    error_below,
    is_below,
    pingpong_recorded,
    record_one_in_eight,
    record_thinned,
    record_windows,
    values_below,
)
from tests.recorder import Recorder, only_profile
from tests.targets_run import DEADLINE_S, Target

WAYS: dict[str, Callable[..., Run]] = {
    "one in eight": record_one_in_eight,
    "then one in eight": record_thinned,
    "windows": record_windows,
}
SIGMAS = 6
SHORT = ("takeJobs", "useLock", "consume", "serve")
# A fifth of them last 20 ms: of these some hundred, too few are recorded to compare counts.
LONG = "waitLong"


@pytest.mark.alone
@pytest.mark.parametrize("version", versions("1.19", "1.22", "1.27"))
@pytest.mark.parametrize("way", [*in_full("one in eight"), "then one in eight", "windows"])
def test_estimates_equal_gos_own_profile(way: str, version: str, tmp_path: Path) -> None:
    run = WAYS[way](tmp_path, version, ("block", "mutex"))
    assert run.coverage.share < 0.9
    for kind in ("block", "mutex"):
        comments = run.ours[kind].comments
        assert any("one wait in eight" in each for each in comments)
        assert any("standard error" in each for each in comments)
    wrong = {}
    for function in (LONG, *SHORT):
        count, delay_ns = values_below(run.ours["block"], function)
        gos_count, gos_ns = values_below(run.go["block"], function)
        error_ns = error_below(run.ours["block"], function)
        if abs(delay_ns - gos_ns) > MUCH * gos_ns + SIGMAS * error_ns:
            wrong[function] = f"{delay_ns} ns +- {error_ns}, by Go {gos_ns}"
        if function != LONG and abs(count - gos_count) > MUCH * gos_count:
            wrong[function] = f"{count} waits, by Go {gos_count}"
    assert wrong == {}
    assert_earlier_and_open_waits_do_not_count(run)


def assert_earlier_and_open_waits_do_not_count(run: Run) -> None:
    """Fifty of them would wait as long as all others together."""
    for profile in (run.go["block"], run.ours["block"]):
        assert values_below(profile, "waitForEver") == (0, 0)
        assert values_below(profile, "waitSinceBefore") == (0, 0)


@pytest.mark.alone
@pytest.mark.full
@pytest.mark.parametrize("version", versions("1.19", "1.22", "1.27"))
def test_releases_of_one_wait_in_eight_equal_gos_own_profile(version: str, tmp_path: Path) -> None:
    run = record_one_in_eight(tmp_path, version, ("block", "mutex"))
    # Before Go 1.22 it charged a release for one waiter, not for all of them.
    count, delay_ns = values_below(run.ours["mutex"], "useLock")
    gos_count, _ = values_below(run.go["mutex"], "useLock")
    _, gos_ns = values_below(run.go["block" if version == "1.19" else "mutex"], "useLock")
    assert abs(count - gos_count) < MUCH * gos_count
    error_ns = error_below(run.ours["mutex"], "useLock")
    assert abs(delay_ns - gos_ns) < MUCH * gos_ns + SIGMAS * error_ns


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_waits_that_begin_before_or_never_end_are_in_no_profile(way: str, tmp_path: Path) -> None:
    """Also without a mutex profile."""
    assert_earlier_and_open_waits_do_not_count(WAYS[way](tmp_path, "1.27", ("block",)))


@pytest.mark.full
@pytest.mark.parametrize("version", versions("1.23", "1.27"))
def test_waits_longer_than_a_window_have_their_labels(version: str, tmp_path: Path) -> None:
    """Also those that began before one and ended after it."""
    run = record_windows(tmp_path, version, ("block",))

    long = [s for s in run.ours["block"].samples if is_below(s, LONG)]
    assert [s for s in long if not any(each.key == "sleeper" for each in s.labels)] == []
    named = {label.value for sample in long for label in sample.labels if label.key == "sleeper"}
    assert named == {str(number) for number in range(20)}


@pytest.mark.full
def test_unreadable_labels_between_windows_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of waits of which only goroutine samples know."""

    def read(_reader: LabelReader, _address: int) -> tuple[Label, ...]:
        raise UnreadableMemory("Nothing is mapped there.")

    monkeypatch.setattr(LabelReader, "read", read)
    run = record_windows(tmp_path, "1.27", ("block",))

    (lost,) = [each for each in losses(run.ours["block"]) if "(labels_unread)" in each]
    assert int(lost.split()[1].replace(",", "")) >= 50  # wait for ever


def test_without_goroutine_samples_the_rest_is_there_and_the_failure_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, reads = GoroutineSampler.sample, iter(range(1 << 30))

    def fails(sampler: GoroutineSampler) -> None:
        if next(reads) > 1:
            raise UnreadableMemory("The list makes no sense.")
        read(sampler)

    monkeypatch.setattr(GoroutineSampler, "sample", fails)
    options = Options(kinds=("block",), max_overhead=1)
    with (
        Target.start(program("load"), f"-length={DEADLINE_S:.0f}s") as target,
        Session([target.pid], options) as session,
    ):
        session.start()
        target.say("go")
        session.wait(LENGTH_S / 2, lambda _: False)
        (report,) = session.finish()
        assert not has_probes(target.pid)
        (failure,) = session.failures()
        target.kill()
    assert isinstance(failure, UnreadableMemory)
    (profile,) = report.profiles
    for function in ("consume", "takeJobs"):
        assert values_below(profile, function)[0] > 1000


@pytest.mark.full
def test_open_waits_have_their_start_times(tmp_path: Path) -> None:
    run = record_windows(tmp_path, "1.27", ("block",), open_waits=True)

    count, delay_ns = values_below(run.ours["open"], "waitForEver")
    assert count == 50
    assert 0.8 * LENGTH_S < delay_ns / 1e9 / count < LENGTH_S + DEADLINE_S
    assert values_below(run.ours["open"], "waitSinceBefore") == (0, 0)
    # No label says that they waited before.
    assert all(s.labels == () for s in run.ours["open"].samples if is_below(s, "waitForEver"))


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_each_label_has_its_share_of_short_waits(way: str, tmp_path: Path) -> None:
    """Of three goroutines that do the same, with a label each."""
    run = WAYS[way](tmp_path, "1.27", ("block", "mutex"))

    users = [s for s in run.ours["block"].samples if is_below(s, "useLock")]
    delays_ns: Counter[str] = Counter()
    for sample in users:
        (label,) = sample.labels
        assert label.key == "user"
        delays_ns[str(label.value)] += sample.values[1]
    assert delays_ns.keys() == {"0", "1", "2"}
    _, gos_ns = values_below(run.go["block"], "useLock")
    error_ns = error_below(run.ours["block"], "useLock")
    for delay_ns in delays_ns.values():
        assert abs(delay_ns - gos_ns / 3) < MUCH * gos_ns / 3 + SIGMAS * error_ns


@pytest.mark.full
@pytest.mark.parametrize("way", ["one in eight", "then one in eight"])
def test_a_lock_has_the_delay_that_go_has(way: str, tmp_path: Path) -> None:
    run = WAYS[way](tmp_path, "1.27", ("block", "mutex"), by_lock=True)
    (lock,) = [each for each in run.locks if each.delay_ns > max(x.delay_ns for x in run.locks) / 2]
    gos_count, gos_ns = values_below(run.go["mutex"], "useLock")
    error_ns = error_below(run.ours["mutex"], "useLock")
    assert abs(lock.delay_ns - gos_ns) < MUCH * gos_ns + SIGMAS * error_ns
    count = sum(sample.values[0] for sample in lock.releases)
    assert count == pytest.approx(gos_count, rel=MUCH)


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_locks_have_names_and_times_held(way: str, tmp_path: Path) -> None:
    run = WAYS[way](tmp_path, "1.27", ("block", "mutex"), by_lock=True)

    lock = max(run.locks, key=lambda each: each.delay_ns)
    assert lock.type == "sync.Mutex"
    assert lock.holds > 10
    # It sleeps for 50 us while it has the lock, which is the least that takes.
    assert 50_000 < lock.held_ns / lock.holds < 50_000_000


def test_where_goroutines_begin_to_run_there_are_probes_for_a_part_of_the_time_only() -> None:
    """They are passed before a goroutine does its next step, and so change what it waits for."""
    (mutex,) = (workload for workload in WORKLOADS if workload.name == "mutex")
    options = Options(kinds=("block",), one_in_eight=1)
    with ExitStack() as held:
        running = Running(mutex, held)
        session = held.enter_context(Session([running.target.pid], options))
        session.start()
        until, turns = monotonic() + DEADLINE_S, set[frozenset[int]]()
        while len(turns) < 2:
            assert monotonic() < until
            running.round(1000)
            turns.add(frozenset(probed(running.target.pid)))
        session.finish()
    fewer, whole = sorted(turns, key=len)
    assert fewer < whole
    assert len(fewer) >= 2  # where waits begin, and where they end


@pytest.mark.full
def test_waits_that_may_not_be_sampled_are_recorded_as_long_as_the_bound_allows(
    tmp_path: Path,
) -> None:
    """In a program whose scheduler we don't know: then that is the reason why it ends."""
    # With a lower bound, the first pause may last until the end on a busy machine.
    options = ("--duration", "2", "--max-overhead", "5", "--profile", "block")
    with Target.start(program("steps")) as target:
        calm = ("--pid", str(target.pid), *options)
        recorder = Recorder(calm, tmp_path, command=command("finds no places"))
        try:
            recorder.wait_until_recording()
            target.ask("hand", "done")
            finished = recorder.finish()
        finally:
            recorder.close()
    assert finished.code == ExitCode.OK, finished.stderr
    assert values_below(only_profile(tmp_path), "hand")[0] == 11
    (path,) = tmp_path.glob("*.pb.gz")
    path.unlink()
    pid, finished = pingpong_recorded("finds no places", tmp_path, *options)
    assert finished.code == ExitCode.ATTACH_FAILED, finished.stderr
    said = " ".join(finished.stderr.split())
    assert f"One wait in eight can't be recorded of process {pid}: " in said
    assert "Record every wait: --max-overhead 0." in said
    assert only_profile(tmp_path).samples  # until then
