"""When samples come, and which targets are sampled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from ebpfprof.goruntime.samples.sampling_thread import (
    FIRST_SAMPLES,
    LATER_SHARE,
    SETTLED_S,
    SampledTarget,
    SamplingRate,
    SamplingThread,
)
from tests.targets_run import DEADLINE_S

OFTEN = SamplingRate(1000, 1000)


@pytest.mark.parametrize(
    ("samples", "cost_s", "interval_s"),
    [
        pytest.param(0, 0.0, 0.1, id="at first"),
        pytest.param(FIRST_SAMPLES - 1, 0.001, 0.1, id="the last of the first ones"),
        pytest.param(FIRST_SAMPLES, 0.001, 0.5, id="later"),
        pytest.param(0, 0.004, 0.2, id="at first, for more than the share"),
        pytest.param(FIRST_SAMPLES, 0.02, 1.0, id="later, for more than the share"),
    ],
)
def test_samples_become_rarer_after_the_first_and_keep_to_their_share(
    samples: int, cost_s: float, interval_s: float
) -> None:
    assert SamplingRate(10, 2).interval_s(samples, cost_s, share=0.02) == pytest.approx(interval_s)


def test_a_target_that_is_sampled_for_long_gets_less() -> None:
    target = SampledTarget(OFTEN, lambda: None, lambda _: None)
    target.note(0.001, 0.0)
    target.plan(0.001, share=0.02)
    assert target.mean_s == pytest.approx(0.002 / 0.02)
    target.began_s -= SETTLED_S
    target.plan(0.001, share=0.02)
    assert target.mean_s == pytest.approx(0.002 / 0.02 / LATER_SHARE)


def test_how_late_samples_come_is_a_mean() -> None:
    target = SampledTarget(OFTEN, lambda: None, lambda _: None)
    assert target.late_ns == 0.0
    target.note(0.001, 0.0025)
    target.note(0.001, 0.0035)
    assert target.late_ns == pytest.approx(3e6)


class Looked:
    """A target that counts the samples of it, and may stop or fail at one of them."""

    def __init__(self, at: int = 1, do: Callable[[], None] = lambda: None) -> None:
        self.turns = SampledTarget(OFTEN, self.sample, self.fail)
        self.samples = 0
        self.errors: list[Exception] = []
        self.reached = threading.Event()
        self._at, self._do = at, do

    def sample(self) -> None:
        self.samples += 1
        if self.samples >= self._at:
            self.reached.set()
            self._do()

    def fail(self, error: Exception) -> None:
        self.errors.append(error)


def looking() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "ebpfprof-samples"]


def test_one_thread_samples_all_and_ends_with_the_last() -> None:
    thread, several = SamplingThread(share=1.0), [Looked(at=20) for _ in range(5)]
    for each in several:
        thread.join(each.turns)
    assert len(looking()) == 1
    assert thread.share == pytest.approx(1 / 5)
    assert all(each.reached.wait(DEADLINE_S) for each in several)
    (running,) = looking()
    for each in several:
        thread.leave(each.turns)
    running.join(DEADLINE_S)
    assert not running.is_alive()
    again = Looked()
    thread.join(again.turns)
    assert again.reached.wait(DEADLINE_S)
    thread.leave(again.turns)


def test_a_target_that_left_is_not_sampled_any_more() -> None:
    """To leave waits for a sample that continues."""
    may_end, has_left = threading.Event(), threading.Event()
    thread, other = SamplingThread(share=1.0), Looked(at=1 << 30)
    leaving = Looked(do=lambda: (may_end.wait(DEADLINE_S), None)[1])
    thread.join(leaving.turns)
    assert leaving.reached.wait(DEADLINE_S)

    def leave() -> None:
        thread.leave(leaving.turns)
        has_left.set()

    threading.Thread(target=leave).start()
    assert not has_left.wait(0.05)
    may_end.set()
    assert has_left.wait(DEADLINE_S)
    samples = leaving.samples
    thread.join(other.turns)
    until_s = time.monotonic() + DEADLINE_S
    while other.samples < 20:  # another thread takes them
        assert time.monotonic() < until_s, "no more samples"
        time.sleep(0.001)  # polls, as it has no event to wait for
    assert leaving.samples == samples
    thread.leave(other.turns)


def test_an_error_ends_the_samples_of_one_target_only() -> None:
    def fail() -> None:
        raise ValueError("unreadable")

    thread, failing, other = SamplingThread(share=1.0), Looked(at=3, do=fail), Looked(at=50)
    for each in (failing, other):
        thread.join(each.turns)
    assert other.reached.wait(DEADLINE_S)
    assert failing.samples == 3
    assert [str(error) for error in failing.errors] == ["unreadable"]
    assert not other.errors
    for each in (failing, other):
        thread.leave(each.turns)


def test_targets_that_are_nearly_due_are_sampled_together() -> None:
    """Two targets with the same rate: most samples come at the same moment."""
    moments: dict[int, list[float]] = {0: [], 1: []}
    both = [
        Looked(at=1, do=lambda number=number: moments[number].append(time.monotonic()))  # type: ignore[misc]  # bound now
        for number in (0, 1)
    ]
    thread = SamplingThread(share=1.0)
    for each in both:
        each.turns.rate = SamplingRate(50, 50)
        thread.join(each.turns)
    while min(map(len, moments.values())) < 20:
        time.sleep(0.01)  # until there were enough samples
    for each in both:
        thread.leave(each.turns)
    apart_s = [min(abs(one - other) for other in moments[1]) for one in moments[0]]
    assert sum(each < 0.002 for each in apart_s) > len(apart_s) / 2


def test_a_target_may_leave_while_its_sample_fails() -> None:
    """As that of a process that has ended: other targets are sampled on."""
    thread, other = SamplingThread(share=1.0), Looked(at=1 << 30)
    thread.join(other.turns)

    def fail() -> None:
        threading.Thread(target=lambda: thread.leave(failing.turns)).start()
        until_s = time.monotonic() + DEADLINE_S
        while thread.share < 1.0:  # it has not left yet
            assert time.monotonic() < until_s, "it does not leave"
            time.sleep(0.001)  # polls, as nothing tells when it has left
        other.samples = 0
        raise ValueError("unreadable")

    failing = Looked(at=3, do=fail)
    thread.join(failing.turns)
    assert failing.reached.wait(DEADLINE_S)
    until_s = time.monotonic() + DEADLINE_S
    while thread.share < 1.0 or other.samples < 20:
        assert time.monotonic() < until_s, "no more samples"
        time.sleep(0.001)  # polls, as it has no event to wait for
    thread.leave(other.turns)
    assert [str(error) for error in failing.errors] == ["unreadable"]
