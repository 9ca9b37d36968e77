"""The budget of a target's overhead, and the windows that it pays for."""

from __future__ import annotations

import math

import pytest

from ebpfprof.overhead.budget import (
    CREDIT_FOR_NS,
    IDLE_SHARE,
    MOST_CREDIT_NS,
    SETTLED_NS,
    SETTLED_TURNS,
    SHORTEST_NS,
    TURN_NS,
    WINDOW_CREDIT,
    Budget,
    samples_to_take,
    why_exceeded,
)
from ebpfprof.overhead.cost import Overhead, Runs

S = 1_000_000_000


def budget(*, spent_ns: float, used_share: float, elapsed_ns: int = 10 * S) -> Budget:
    account = Budget(0.01)
    account.update(spent_ns, used_share * elapsed_ns, elapsed_ns)
    return account


def test_a_share_of_the_cpu_time_is_allowed() -> None:
    allowed_ns = 0.01 * 2 * 10 * S

    assert not budget(spent_ns=allowed_ns, used_share=2).is_overdrawn
    assert budget(spent_ns=allowed_ns + 1, used_share=2).is_overdrawn


def test_an_idle_target_counts_as_a_tenth_of_a_processor() -> None:
    allowed_ns = 0.01 * 0.1 * 100 * S

    for spent_ns, is_overdrawn in ((allowed_ns, False), (allowed_ns + 1, True)):
        account = budget(spent_ns=spent_ns, used_share=0.001, elapsed_ns=100 * S)
        assert account.is_overdrawn == is_overdrawn


@pytest.mark.parametrize(
    ("used_share", "credit_ns"),
    [
        (0, 0.01 * IDLE_SHARE * CREDIT_FOR_NS),  # half a millisecond
        (0.5, 0.01 * 0.5 * CREDIT_FOR_NS),
        (1, 0.01 * CREDIT_FOR_NS),  # five
        (64, MOST_CREDIT_NS),
    ],
)
def test_the_initial_credit_is_what_the_bound_allows_in_half_a_second(
    used_share: float, credit_ns: float
) -> None:
    for spent_ns, is_overdrawn in ((credit_ns, False), (credit_ns + 1, True)):
        account = budget(spent_ns=spent_ns, used_share=used_share, elapsed_ns=S // 100)
        assert account.is_overdrawn == is_overdrawn


@pytest.mark.parametrize("used_share", [0.01, 0.1, 1, 8])
def test_a_recording_of_two_seconds_costs_little_more_than_the_bound(used_share: float) -> None:
    """By a clock of its own: the program waits so often that probes take half of its CPU time."""
    rate = max(used_share, 0.01) / 2
    account, now_ns, spent_ns = Budget(0.01), 0.0, 0.0
    step_ns = 100_000  # an alarm comes as soon as this

    def pass_ns(length_ns: float, *, is_on: bool) -> None:
        nonlocal now_ns, spent_ns
        now_ns += length_ns
        spent_ns += rate * length_ns if is_on else 0.0
        account.update(spent_ns, used_share * now_ns, int(now_ns))

    while now_ns == 0 or not account.is_overdrawn:
        pass_ns(step_ns, is_on=True)
    account.note_window(spent_ns, now_ns, 0)
    while now_ns < 2 * S:
        following = account.next_window()
        assert following.window_ns is not None
        pass_ns(max(0.0, following.pause_ns), is_on=False)
        until_ns = now_ns + following.window_ns
        while now_ns < until_ns and account.credit_ns > 0:
            pass_ns(step_ns, is_on=True)
    allowed_ns = 0.01 * max(used_share, IDLE_SHARE) * now_ns
    assert 0.5 * allowed_ns < spent_ns < 1.3 * allowed_ns


def test_the_initial_credit_is_paid_back() -> None:
    credit_ns = 0.01 * CREDIT_FOR_NS
    account = budget(spent_ns=credit_ns, used_share=1, elapsed_ns=S // 100)
    account.note_window(0.5 * S, S, 0)
    following = account.next_window()
    assert following.window_ns is not None
    # At the end of the turn all has been earned, with the credit.
    earned_ns = 0.01 * (S // 100 + following.pause_ns + following.window_ns)
    assert earned_ns == pytest.approx(credit_ns + 0.5 * following.window_ns)


@pytest.mark.parametrize(
    ("elapsed_ns", "credit_ns"),
    [(S, 0.01 * CREDIT_FOR_NS), (4 * S, 0.01 * 4 * S * WINDOW_CREDIT), (10 * S, MOST_CREDIT_NS)],
)
def test_a_window_may_exceed_the_budget_by_a_part_of_it(elapsed_ns: int, credit_ns: float) -> None:
    account = budget(spent_ns=0.01 * elapsed_ns + 1, used_share=1, elapsed_ns=elapsed_ns)
    assert account.left_ns == -1
    assert account.credit_ns == pytest.approx(credit_ns - 1)


def test_windows_get_rarer_and_longer_at_the_same_cost() -> None:
    def turn_after(elapsed_ns: int, least_ns: float = 0) -> tuple[float, int]:
        account = budget(spent_ns=0.01 * elapsed_ns, used_share=1, elapsed_ns=elapsed_ns)
        account.note_window(0.1 * S, S, 0)
        following = account.next_window(least_ns)
        assert following.window_ns is not None
        return following.pause_ns, following.window_ns

    early, late = turn_after(SETTLED_NS - 1), turn_after(SETTLED_NS)
    assert sum(early) == pytest.approx(TURN_NS)
    assert late == pytest.approx([SETTLED_TURNS * each for each in early])
    of_many = turn_after(SETTLED_NS, least_ns=40 * TURN_NS)
    assert of_many == pytest.approx([40 * each for each in early])


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("around_ns", [0, 2_000_000, 50_000_000])
def test_windows_cost_the_bound_in_the_long_run(rate: float, around_ns: int) -> None:
    account = Budget(0.01)
    account.note_window(rate * (S + around_ns), S, around_ns)
    now_ns, spent_ns = 0.0, 0.0
    for _ in range(200):
        account.update(spent_ns, now_ns, int(now_ns))
        following = account.next_window()
        assert following.window_ns is not None
        assert following.window_ns >= SHORTEST_NS
        now_ns += max(0.0, following.pause_ns) + around_ns + following.window_ns
        spent_ns += rate * (following.window_ns + around_ns)

    assert spent_ns == pytest.approx(0.01 * now_ns, rel=0.02)


def test_windows_that_begin_slowly_are_longer() -> None:
    account = budget(spent_ns=0, used_share=1)
    account.note_window(0.5 * (S + 50_000_000), S, 50_000_000)
    following = account.next_window()

    assert following.window_ns == 100_000_000


def test_a_target_within_the_bound_is_recorded_all_the_time() -> None:
    account = budget(spent_ns=0, used_share=1)
    account.note_window(0.005 * S, S, 0)

    assert account.next_window().window_ns is None


def test_the_rate_rises_at_once_and_falls_slowly() -> None:
    account = Budget(0.01)
    account.note_window(0.1 * S, S, 0)
    account.note_window(0.5 * S, S, 0)
    assert account.rate == pytest.approx(0.5)
    account.note_window(0.1 * S, S, 0)
    assert account.rate == pytest.approx(0.3)


def test_a_debt_is_paid_by_a_longer_pause() -> None:
    def pause_ns(spent_ns: float) -> float:
        account = budget(spent_ns=spent_ns, used_share=1)
        account.note_window(0.5 * S, S, 0)
        return account.next_window().pause_ns

    assert pause_ns(0.2 * S) - pause_ns(0.15 * S) == pytest.approx(5 * S)


def test_the_budget_lasts_until_spending_exceeds_it() -> None:
    account = budget(spent_ns=0.05 * S, used_share=1, elapsed_ns=10 * S)

    assert account.lasts_ns(0.04 * S, 0.1 * S) == pytest.approx(0.05 * S / (0.1 - 0.01))
    assert account.lasts_ns(0.05 * S, 0.1 * S) == math.inf
    # The credit does not grow.
    account = budget(spent_ns=0.01 * CREDIT_FOR_NS / 2, used_share=1, elapsed_ns=S // 100)
    assert account.lasts_ns(0, S // 100) == pytest.approx(S // 100)


@pytest.mark.parametrize(
    ("bound", "spent_share", "used_share", "elapsed_s", "why"),
    [
        (0.01, 0.04, 0.025, 2, "The process used 2.5 % of a CPU. The bound counts that as 10 %."),
        (0.01, 0.04, 0.025, 100, "The process used 2.5 % of a CPU. The bound counts that as 10 %."),
        (0.01, 0.02, 1, 2, "The bound holds on average. A short recording can exceed it."),
        (0.01, 0.02, 1, 100, ""),  # neither explains it
        (0.01, 0.01, 0.025, 2, ""),
        (0.0, 0.5, 0.025, 2, ""),
    ],
)
def test_an_exceeded_bound_is_explained(
    bound: float, spent_share: float, used_share: float, elapsed_s: int, why: str
) -> None:
    used_ns = round(used_share * elapsed_s * S)
    overhead = Overhead(Runs(1, spent_share * used_ns, 1), Runs(), 0.0, used_ns)
    assert why_exceeded(overhead, bound, elapsed_s * S) == why


@pytest.mark.parametrize(
    ("one_in", "spent_ns", "wanted"), [(1, 0.005 * S, 1), (1, 0.021 * S, 3), (3, 0.02 * S, 6)]
)
def test_expensive_samples_are_thinned(one_in: int, spent_ns: float, wanted: int) -> None:
    assert samples_to_take(one_in, spent_ns, S, 0.01) == wanted
    assert samples_to_take(one_in, spent_ns, 0, 0.01) == one_in
