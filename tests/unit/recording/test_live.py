"""Processes that are recorded for as long as callers want, and recordings from start to end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ebpfprof.errors import AttachFailed, NotGoProgram, TargetGone
from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.profile.losses import Loss
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.registry import registered
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.session import Session
from tests.kernel.unharmed import await_true
from tests.unit.recording.made_up_profiler import DREAMS, KIND, OPENED, MadeUpProfiler

OPTIONS = (KIND.name,)
Start = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture(autouse=True)
def kind() -> Iterator[None]:
    with registered(KIND), registered(DREAMS):
        yield
    OPENED.clear()


@pytest.fixture
def started() -> Iterator[Start]:
    """Starts programs that wait for input."""
    with ExitStack() as held:

        def start() -> subprocess.Popen[bytes]:
            child = held.enter_context(
                subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            assert child.stdin
            assert child.stdout
            child.stdin.write(b"x")
            child.stdin.flush()
            child.stdout.read(1)  # it has begun
            return child

        yield start


@pytest.fixture
def live() -> Iterator[LiveSession]:
    with LiveSession(
        Options(OPTIONS), capacity=2, is_no_thread=True, processes=OpenProcesses()
    ) as session:
        yield session


def profiler() -> MadeUpProfiler:
    return OPENED[-1]


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


def test_a_process_is_recorded_from_its_first_start_to_its_last_stop(
    live: LiveSession, started: Start
) -> None:
    target = live.add(started().pid)
    live.load()
    assert profiler().calls == ["load for 0"]
    assert (target.name, target.kinds, target.go_version) == ("cat", OPTIONS, None)
    assert (target.is_recording, target.recorded_ns) == (False, 0)
    profiler().calls.clear()
    live.start(target)
    live.start(target)
    live.start(target)
    assert profiler().calls == ["start"]
    live.stop(target)
    live.stop(target)
    assert target.is_recording
    assert profiler().calls == ["start"]
    live.stop(target)
    assert profiler().calls == ["start", "end", "stop"]
    assert live.sums(target).facts.ended_ns == target.recorded_ns  # which no longer grows
    live.stop(target)  # which is one too many
    live.start(target)
    assert profiler().calls == ["start", "end", "stop", "start"]


def test_the_time_in_which_a_process_is_recorded_adds_up(live: LiveSession, started: Start) -> None:
    target = live.add(started().pid)
    assert (target.recorded_ns, target.started_unix_ns) == (0, 0)
    before_ns = time.monotonic_ns()
    live.start(target)
    first_unix_ns = target.started_unix_ns
    assert abs(first_unix_ns - time.time_ns()) < 60e9
    assert 0 <= target.recorded_ns <= time.monotonic_ns() - before_ns
    live.stop(target)
    first_ns = target.recorded_ns
    assert 0 < first_ns <= time.monotonic_ns() - before_ns
    live.start(target)
    assert first_ns <= target.recorded_ns <= time.monotonic_ns() - before_ns
    live.stop(target)
    assert first_ns < target.recorded_ns <= time.monotonic_ns() - before_ns
    assert target.started_unix_ns == first_unix_ns


def test_a_process_that_ends_is_no_longer_recorded(live: LiveSession, started: Start) -> None:
    child, other = started(), started()
    target, running = live.add(child.pid), live.add(other.pid)
    live.start(target)
    live.start(running)
    end(child)
    live.notice_endings()
    assert (target.is_recording, running.is_recording) == (False, True)
    assert target.ending is not None
    assert target.recorded.ended_ns > 0
    assert profiler().calls == ["start", "start", "end", "stop"]
    live.notice_endings()
    assert profiler().calls == ["start", "start", "end", "stop"]
    assert live.sums(target).facts.ending == target.ending
    with pytest.raises(TargetGone, match="The recording has ended: process"):
        live.start(target)


def test_a_process_that_ended_before_its_start_was_not_recorded(
    live: LiveSession, started: Start
) -> None:
    child = started()
    target = live.add(child.pid)
    end(child)
    with pytest.raises(TargetGone, match="Nothing was recorded"):
        live.start(target)
    assert profiler().calls == []


def test_what_fails_at_the_start_is_taken_back(live: LiveSession, started: Start) -> None:
    target = live.add(started().pid)
    (recording,) = profiler().recordings
    recording.error = AttachFailed("There is no room.")
    with pytest.raises(AttachFailed, match="no room"):
        live.start(target)
    assert not target.is_recording
    assert profiler().calls == ["start", "end", "stop"]
    recording.error = None
    live.start(target)
    assert target.is_recording


def test_the_slot_that_was_free_longest_is_used_again(live: LiveSession, started: Start) -> None:
    first, second = (live.add(started().pid) for _ in range(2))
    with pytest.raises(AttachFailed, match="ebpfprof records 2 processes already"):
        live.add(started().pid)
    live.remove(second)
    live.remove(first)
    live.remove(first)
    live.add(started().pid)
    live.add(started().pid)
    assert profiler().slots == [0, 1, 1, 0]


def test_a_process_that_was_removed_is_gone(live: LiveSession, started: Start) -> None:
    target = live.add(started().pid)
    live.start(target)
    live.start(target)
    sums = live.sums(target)
    live.remove(target)
    assert profiler().calls == ["start", "end", "stop", "close"]
    assert not target.is_recording
    for use in (
        lambda: live.sums(target),
        lambda: live.report(sums),
        lambda: live.overhead(target),
    ):
        with pytest.raises(TargetGone, match=f"Process {target.pid} was removed"):
            use()


def test_sums_are_those_of_the_wanted_kinds(live: LiveSession, started: Start) -> None:
    target = live.add(started().pid)
    assert live.sums(target).parts == {}
    live.start(target)
    (recording,) = profiler().recordings
    assert live.sums(target).parts == {recording: 1}
    assert live.sums(target, ["other"]).parts == {}
    assert live.sums(target, [KIND.name, "other"]).facts.kinds == OPTIONS


def test_a_report_is_of_the_time_between_two_sums(live: LiveSession, started: Start) -> None:
    target = live.add(started().pid)
    live.start(target)
    first = live.sums(target)
    profiler().poll()
    live.report(live.sums(target), first)
    live.report(first)
    assert profiler().calls[2:] == ["report 2 since 1", "report 1 since None"]


def test_losses_stay_when_a_process_is_removed(live: LiveSession, started: Start) -> None:
    first, second = (live.add(started().pid) for _ in range(2))
    for number, recording in enumerate(profiler().recordings, 2):
        recording.lost = number
    full = Loss("full", "naps in a full table", 5, ("rests",))
    assert live.losses(second) == (Loss("late", "late naps", 3, OPTIONS), full)
    live.remove(first)
    for _ in range(2):
        assert {loss.name: loss.count for loss in live.losses()} == {"late": 5, "full": 5}


def test_profilers_are_polled_while_a_process_is_recorded(
    live: LiveSession, started: Start
) -> None:
    target = live.add(started().pid)
    live.poll()
    assert profiler().calls == []
    live.start(target)
    live.poll()
    assert profiler().calls == ["start", "poll"]


def test_the_session_notices_by_itself_that_a_process_ends(started: Start) -> None:
    child = started()
    with LiveSession(Options(OPTIONS)) as live:
        target = live.add(child.pid)
        live.start(target)
        end(child)
        await_true(lambda: target.ending is not None, "its end is not noticed")
        assert "poll" in profiler().calls
    assert profiler().calls[-1] == "close all"


def test_files_are_opened_by_a_child_unless_another_session_does() -> None:
    def openers() -> int:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        names = [Path(f"/proc/{pid}/comm").read_text() for pid in children]
        return names.count("ebpfprof-files\n")

    with LiveSession(Options(OPTIONS), is_no_thread=True) as live:
        await_true(lambda: openers() == 1, "there is no such child")
        with LiveSession(Options(OPTIONS), is_no_thread=True, processes=live.processes):
            assert openers() == 1
    assert openers() == 0


def test_only_what_is_asked_for_needs_a_go_program(live: LiveSession, started: Start) -> None:
    pid = started().pid
    assert "is not a Go program: only its nap profile is recorded" in (live.add(pid).recorded.no_go)
    with (
        LiveSession(
            Options((KIND.name, "threads")), is_no_thread=True, processes=OpenProcesses()
        ) as other,
        pytest.raises(NotGoProgram),
    ):
        other.add(pid)
    options = Options((KIND.name, "threads"), kinds_given=False)
    with LiveSession(options, is_no_thread=True, processes=OpenProcesses()) as other:
        target = other.add(pid)
        assert target.kinds == OPTIONS


def recorded_once(session: Session, duration_s: float, should_stop: bool) -> list[float]:
    gone: list[float] = []

    def stop(gone_s: float) -> bool:
        gone.append(gone_s)
        return should_stop

    session.start()
    session.wait(duration_s, stop)
    return gone


def test_a_recording_ends_after_its_duration(started: Start) -> None:
    child = started()
    with Session([child.pid], Options(OPTIONS)) as session:
        assert [target.pid for target in session.targets] == [child.pid]
        assert session.files(session.targets[0]) == OPTIONS
        gone = recorded_once(session, 0.05, should_stop=False)
        assert gone
        assert gone[0] < 0.05
        (report,) = session.finish()
        assert report.overhead is not None
        assert (session.early_endings(), session.failures()) == ([], [])
        assert {loss.name for loss in session.losses()} == {"late", "full"}
        (refusal,) = session.refusals()
        assert "only its nap profile is recorded" in refusal
    calls = [call for call in profiler().calls if call != "poll"]
    assert calls[:6] == ["load for 0", "start", "note end", "end", "detach", "close all"]
    assert "poll" in profiler().calls


def test_files_are_those_of_the_chosen_kinds_and_of_those_that_options_add(started: Start) -> None:
    with Session([started().pid], Options(OPTIONS, dreams=True)) as session:
        assert session.files(session.targets[0]) == (*OPTIONS, DREAMS.name)


def test_a_recording_ends_when_the_caller_wants(started: Start) -> None:
    with Session([started().pid], Options(OPTIONS)) as session:
        assert len(recorded_once(session, 3600, should_stop=True)) == 1


@pytest.mark.parametrize("until_end", [False, True])
def test_a_recording_ends_when_all_processes_have_ended(started: Start, until_end: bool) -> None:
    children = [started(), started()]
    with Session([one.pid for one in children], Options(OPTIONS), until_end=until_end) as session:
        session.start()
        for child in children:
            end(child)
        session.wait(3600, lambda _: False)
        session.finish()
        assert len(session.endings()) == 2
        assert len(session.early_endings()) == (0 if until_end else 2)
