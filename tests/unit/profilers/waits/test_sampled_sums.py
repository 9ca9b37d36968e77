"""What stacks add up to, if not every wait was recorded, and how uncertain that is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.profile.evidence import is_ranked
from ebpfprof.profile.model import Label
from ebpfprof.profilers.waits.rows import KnownStack, StackSums, Waker
from ebpfprof.profilers.waits.sampled_sums import SampledSums, row_of

A = KnownStack(0, "block", 0, (1, 2), ())
B = KnownStack(0, "block", 0, (3,), ())
RELEASE = KnownStack(0, "mutex", 0, (4,), ())
NONE = StackSums()
TRACKED = StackSums(
    count=16,
    delay_ns=800,
    parks=2,
    probed=2,
    unknown=1,
    runs=2,
    runnable_ns=30,
    row_squares=4,
    squares=5000,
)


def windows(
    *found: tuple[StackSums, float], pause: float = 0.0, stack: KnownStack = A
) -> SampledSums:
    """Windows with these sums of a stack, and runs of goroutines; before each of them a pause."""
    sums = SampledSums()
    for more, runs in found:
        sums.add_pause(pause)
        sums.add_window({stack: more} if more != NONE else {}, 1000, runs)
    return sums


def test_nothing_was_recorded() -> None:
    sums = SampledSums()
    assert sums.stacks(["block", "mutex"]) == {}
    assert not sums.is_sampled
    assert sums.scale == 0
    assert sums.window_variances("block") == (0, 0)


def test_every_wait_is_exact() -> None:
    sums = SampledSums()
    sums.add_every({A: StackSums(3, 30)})
    sums.add_every({A: StackSums(1, 20), B: StackSums(2, 7)})
    assert not sums.is_sampled
    found = sums.stacks(["block"])
    assert found[A].every == StackSums(4, 50)
    assert found[B].every == StackSums(2, 7)
    assert {
        (each.sampled, each.count_variance, each.delay_variance) for each in found.values()
    } == {(NONE, 0, 0)}


def test_one_wait_in_eight_counts_eight_times_in_the_kernel_already() -> None:
    sums = SampledSums()
    sums.add_eighth({A: TRACKED})
    sums.add_eighth({A: TRACKED})
    assert sums.is_sampled
    (found,) = sums.stacks(["block"]).values()
    assert (found.every, found.sampled) == (NONE, TRACKED + TRACKED)
    # Of n waits in random order one in eight: 8 * 7 * n / 8 of the count, the squares of delays.
    # The 95 % interval of so few is that of two more.
    changed = (0.03 * TRACKED.runs / TRACKED.parks) ** 2
    of_changes = changed * found.sampled.count**2, changed * found.sampled.delay_ns**2
    assert found.count_variance == pytest.approx(56 * (4 + 2) + of_changes[0])
    assert found.delay_variance == pytest.approx(56 * 2 * 5000 * (4 + 2) / 4 + of_changes[1])


def test_a_park_that_another_one_followed_is_a_part_of_one_event() -> None:
    """Of 10 parks 4 were followed until the goroutine ran: 3 parked again, 50 ns later each."""
    sums = SampledSums()
    sums.add_eighth({A: StackSums(count=80, delay_ns=800, parks=10, runs=4, again=3, again_ns=150)})
    found = sums.stacks(["block"])[A].sampled
    assert (found.count, found.delay_ns) == (80 / 4, 800 + 80 * 3 / 4 * 50)


def test_in_windows_the_part_of_repeated_parks_is_the_same() -> None:
    seen = StackSums(count=80, delay_ns=800, parks=10, runs=4, again=3, again_ns=150)
    found = windows((seen, 10), pause=90).stacks(["block"])[A].sampled
    assert found.count == pytest.approx(800 / 4)
    assert found.delay_ns == pytest.approx(8000 + 800 * 3 / 4 * 50)


def test_the_part_of_repeated_parks_is_that_of_all_parts_of_the_recording() -> None:
    """2 of 4 in windows, 4 of 4 while one in eight was recorded all the time."""
    seen = StackSums(count=80, parks=10, runs=4, again=2)
    sums = windows((seen, 10), pause=10)
    sums.add_eighth({A: replace(seen, again=4)})
    found = sums.stacks(["block"])[A].sampled
    assert found.count == pytest.approx(2 * (80 + 80) * (1 - 6 / 8))


def test_the_part_of_repeated_parks_adds_to_the_error() -> None:
    """24 of 98 that were seen, out of 196: about a quarter, which 98 show to a twentieth."""
    sums = SampledSums()
    sums.add_eighth({A: StackSums(1568, 800, 196, runs=98, again=24, again_ns=9800, squares=56)})
    found = sums.stacks(["block"])[A]
    of_parks, others, again_ns = 56 * 198, 98 * 16 * 15, 9800 / 98
    unsure, changed = 0.2 * 0.25 * 0.75 * 8 * 196, 0.03 / 2
    assert found.count_variance == pytest.approx(
        0.75**2 * of_parks + others * 0.25 * 0.75 + unsure**2 + (changed * found.sampled.count) ** 2
    )
    assert found.delay_variance == pytest.approx(
        (56 * math.sqrt(198 / 196) + again_ns * math.sqrt(of_parks)) ** 2
        + others * again_ns**2 * (2 / 0.25 - 1) * (1 + 2 / 24)
        + (again_ns / 0.25 * unsure) ** 2
        + (changed * found.sampled.delay_ns) ** 2
    )


def test_probes_where_goroutines_begin_to_run_add_to_the_error_while_they_are_there() -> None:
    sums = SampledSums()
    sums.add_eighth({A: StackSums(count=800, delay_ns=8000, parks=100)})
    before = sums.stacks(["block"])[A]
    sums.add_eighth({A: StackSums(runs=50)})
    found = sums.stacks(["block"])[A]
    assert found.sampled.count == 800
    assert found.count_variance - before.count_variance == pytest.approx((0.015 * 800) ** 2)
    assert found.delay_variance - before.delay_variance == pytest.approx((0.015 * 8000) ** 2)


def test_if_all_parks_were_seen_the_usual_error_of_events_is_left() -> None:
    """Of a park that stands for itself alone nothing more is uncertain."""
    sums = SampledSums()
    sums.add_eighth({A: StackSums(784, 0, 98, runs=98, again=48)})
    found = sums.stacks(["block"])[A]
    unsure, changed = 0.2 * 0.5 * 0.5 * 784, 0.03 * found.sampled.count
    of_all = 56 * 100 / 2 + unsure**2 + changed**2
    assert found.count_variance == pytest.approx(of_all, rel=0.03)
    sums = SampledSums()
    sums.add_eighth({A: StackSums(8, 0, 1, runs=98, again=48)})  # most began before
    assert sums.stacks(["block"])[A].count_variance == pytest.approx(56 * 3 / 4, rel=0.05)


def test_without_a_goroutine_that_was_seen_to_run_each_park_is_an_event() -> None:
    sums = SampledSums()
    sums.add_eighth({A: StackSums(count=80, delay_ns=800, parks=10)})
    found = sums.stacks(["block"])[A]
    assert (found.sampled.count, found.count_variance) == (80, 56 * 12)


def test_releases_have_no_parks_but_the_variance_of_their_count() -> None:
    sums = SampledSums()
    sums.add_eighth({RELEASE: StackSums(count=80, delay_ns=8)})
    assert sums.stacks(["mutex"])[RELEASE].count_variance == 56 * 12


def test_windows_stand_for_the_runs_of_the_whole_time() -> None:
    sums = windows((TRACKED, 10), (NONE, 30), pause=80)
    assert sums.is_sampled
    assert sums.scale == (2 * 80 + 40) / 40
    (found,) = sums.stacks(["block"]).values()
    assert found.sampled == TRACKED.times(5)
    assert (sums.windows, sums.windows_ns) == (2, 2000)
    assert (sums.runs_in_windows, sums.runs) == (40, 200)


def test_time_does_not_matter() -> None:
    found = []
    for length_ns in (1, 10_000):
        sums = SampledSums()
        sums.add_pause(30)
        sums.add_window({A: TRACKED}, length_ns, 10)
        found.append(sums.stacks(["block"])[A].sampled)
    assert found[0] == found[1] == TRACKED.times(4)


def test_the_parts_add_up_and_all_sampled_ones_stand_for_pauses() -> None:
    sums = windows((TRACKED, 10), (StackSums(8, 100, 1), 10), pause=10)
    assert sums.scale == 2
    sums.add_every({A: StackSums(5, 50)})
    sums.add_eighth({A: TRACKED, B: TRACKED})
    sums.runs_in_eighth = 20
    assert sums.scale == 1.5
    found = sums.stacks(["block"])
    of_windows = sums.window_variances(A)
    assert found[A].every == StackSums(5, 50)
    assert found[A].sampled == (TRACKED + TRACKED + StackSums(8, 100, 1)).times(1.5)
    seen = TRACKED + TRACKED + StackSums(8, 100, 1)
    changed = (0.03 * seen.runs / seen.parks) ** 2
    assert found[A].count_variance == pytest.approx(
        of_windows[0] + 1.5**2 * 56 * (2 + 2) + changed * found[A].sampled.count ** 2
    )
    assert found[A].delay_variance == pytest.approx(
        of_windows[1] + 1.5**2 * 56 * 5000 * (2 + 2) / 2 + changed * found[A].sampled.delay_ns ** 2
    )
    assert found[B].sampled == TRACKED.times(1.5)


def test_stacks_are_those_of_the_wanted_kinds() -> None:
    sums = SampledSums()
    sums.add_every({A: StackSums(1, 1)})
    sums.add_eighth({RELEASE: StackSums(8, 8)})
    sums.add_window({B: StackSums(8, 8, 1)}, 1, 1)
    assert sums.stacks(["block"]).keys() == {A, B}
    assert sums.stacks(["mutex"]).keys() == {RELEASE}
    assert sums.stacks(["block", "mutex"]).keys() == {A, B, RELEASE}


def test_windows_without_runs_stand_for_nothing() -> None:
    """Goroutines that never ran can't have begun to wait."""
    sums = windows((NONE, 0), (NONE, 0), pause=5)
    sums.add_eighth({A: TRACKED})
    assert sums.scale == 0
    assert sums.window_variances("block") == (0, 0)
    found = sums.stacks(["block"])[A]
    assert found.sampled == TRACKED


def test_what_a_single_window_stands_for_is_known_to_a_half() -> None:
    """As measured: nothing in the window shows it. Delays vary more."""
    sums = windows((StackSums(80_000, 10_000, 10_000, squares=10_000), 10), pause=30)
    found = sums.stacks(["block"])[A]
    assert (found.sampled.count, found.sampled.delay_ns) == (320_000, 40_000)
    of_counts, of_delays = sums.window_variances(A)
    assert (found.count_variance, found.delay_variance) == (of_counts, of_delays)
    assert 1.96 * math.sqrt(of_counts) == pytest.approx(0.5 * 240_000, rel=0.03)
    assert 1.96 * math.sqrt(of_delays) > 30_000
    eighth = SampledSums(runs_in_eighth=10.0)  # one part is one window, however it was recorded
    eighth.add_pause(30)
    eighth.add_eighth({A: StackSums(80_000, 10_000, 10_000)})
    assert 1.96 * math.sqrt(eighth.window_variances(A)[0]) == pytest.approx(120_000, rel=0.03)


def test_a_window_with_a_single_run_has_an_error() -> None:
    sums = windows((StackSums(8, 80, 1), 1), pause=9)
    assert sums.scale == 10
    assert min(sums.window_variances(A)) > 0


def test_windows_that_differ_have_a_larger_error_than_those_that_are_alike() -> None:
    """Two that are alike may be so by chance: they have half of what is usual, or more."""
    alike, apart = (
        windows(*((StackSums(y, 7 * y, y / 8), 10) for y in counts), pause=90)
        for counts in ((8000, 8000), (4000, 12_000))
    )
    error = math.sqrt(alike.window_variances(A)[0]) / (10 * 16_000)
    assert 0.25 < 1.96 * error / 0.5 < 1
    for of_alike, of_apart in zip(
        alike.window_variances(A), apart.window_variances(A), strict=True
    ):
        assert of_apart > 2 * of_alike


def test_of_a_time_in_windows_one_wait_in_eight_is_known() -> None:
    """The windows differ by much, which is nearly all of the error."""
    found = ((NONE, 10), (StackSums(80_000, 80_000, 10_000), 10))
    without, with_pauses = (windows(*found, pause=pause) for pause in (0, 10))
    assert (without.scale, with_pauses.scale) == (1, 2)
    for one, other in zip(
        without.window_variances(A), with_pauses.window_variances(A), strict=True
    ):
        assert other / one == pytest.approx(2**2 * (15 / 16) / (7 / 8), rel=0.05)


def test_windows_are_compared_with_their_runs() -> None:
    counts = [(800, 10), (8000, 100), (80_000, 1000)]
    sums = windows(*((StackSums(y, 7 * y, y / 8), x) for y, x in counts), pause=1000)
    constant = windows(*((StackSums(8000, 56_000, 1000), x) for _, x in counts), pause=1000)
    error, of_constant = (
        math.sqrt(each.window_variances(A)[0]) / each.stacks(["block"])[A].sampled.count
        for each in (sums, constant)
    )
    assert error < 0.3 < of_constant


def test_a_wait_of_which_only_the_end_was_seen_is_in_the_variance() -> None:
    """It is counted, too, if samples saw such waits: see estimates."""
    of_unknown = windows((StackSums(unknown=1), 10), (StackSums(unknown=3), 10), pause=90)
    of_known = windows((StackSums(8), 10), (StackSums(24), 10), pause=90)
    both = windows((StackSums(4, unknown=0.5), 10), (StackSums(12, unknown=1.5), 10), pause=90)
    assert of_unknown.window_variances(A)[0] == of_known.window_variances(A)[0] > 0
    of_both = both.window_variances("block")[0]
    assert of_unknown.window_variances("block")[0] == pytest.approx(of_both)


def test_all_stacks_of_a_kind_vary_less_than_each_of_them() -> None:
    sums = SampledSums()
    for a, b in ((80, 0), (0, 80), (80, 0), (0, 80)):
        sums.add_pause(100)
        sums.add_window({A: StackSums(a, a, a / 8), B: StackSums(b, b, b / 8)}, 1, 100)
    rows = zip(sums.window_variances(A), sums.window_variances(B), strict=True)
    for of_kind, of_rows in zip(sums.window_variances("block"), map(sum, rows), strict=True):
        assert of_kind < of_rows / 2
    assert sums.window_variances("mutex") == (0, 0)


@pytest.mark.parametrize(("runs", "share"), [(12, 0.5), (6, 1.0), (3, 1.0)])
def test_runs_that_followed_no_wait_are_known(runs: int, share: float) -> None:
    release = RELEASE._replace(return_pcs=(8,))
    sums = SampledSums()
    assert sums.waits_per_run == 1
    for _ in range(2):
        more = {
            A: StackSums(parks=1, unknown=1),
            B: StackSums(parks=1),
            release: StackSums(parks=9),
        }
        sums.add_window(more, 1, runs / 2)
    assert sums.waits_per_run == share


def test_a_single_run_is_enough_to_scale_by() -> None:
    sums = windows((TRACKED, 1), pause=4)
    assert sums.scale == 5
    assert sums.stacks(["block"])[A].sampled == TRACKED.times(5)
    many = windows((StackSums(parks=1), 0.5), (StackSums(), 0.25))
    assert many.waits_per_run == 1
    none = windows((StackSums(runs=1), 1))
    assert none.waits_per_run == 0
    first = SampledSums()
    first.add_every({A: StackSums(count=1)})
    first.runs_at_first = 1
    first.add_pause(3)
    assert first.stacks(["block"])[A].sampled.count == 3


def test_uncharged_waiting_adds_up_by_semaphore() -> None:
    sums = SampledSums()
    sums.add_uncharged({0xA0: 5.0, 0xB0: 1.0})
    sums.add_uncharged({0xA0: 2.0})
    assert sums.uncharged == {0xA0: 7.0, 0xB0: 1.0}


def test_before_the_first_window_the_time_at_first_stands_for_the_pause() -> None:
    sums = SampledSums()
    sums.add_every({A: StackSums(count=3, delay_ns=30)})
    sums.runs_at_first = 10
    sums.add_pause(40)
    found = sums.stacks(["block"])[A]
    assert found.every == StackSums(count=3, delay_ns=30)
    assert (found.sampled.count, found.sampled.delay_ns) == (12, 120)
    assert (found.count_variance, found.delay_variance) == (12**2, 120**2)
    sums.add_eighth({A: TRACKED})  # the budget allowed a window without an end
    sums.runs_in_eighth = 80
    assert sums.stacks(["block"])[A].sampled == TRACKED.times(1.5)
    sums.add_window({}, 1, 80)
    assert sums.stacks(["block"])[A].sampled == TRACKED.times(1.25)


def test_goroutines_wait_in_a_pause_for_no_larger_part_of_the_time_than_at_first() -> None:
    """Without probes they run more often, and each wait is shorter."""
    sums = SampledSums(at_first_ns=10, pauses_ns=20)
    sums.add_every({A: StackSums(count=3, delay_ns=8)})
    sums.runs_at_first = 10
    sums.add_pause(1000)
    found = sums.stacks(["block"])[A]
    assert (found.sampled.count, found.sampled.delay_ns) == (300, 16)
    assert found.delay_variance == 16**2
    sums.runs -= 990  # they run less often
    assert sums.stacks(["block"])[A].sampled.delay_ns == 8


def test_a_row_has_the_sum_of_what_is_exact_and_what_is_estimated() -> None:
    stack = KnownStack(7, "wakers", 0xA0, (1,), (Label("user", "anna"),), Waker("thread", (9,)))
    sums = SampledSums()
    sums.add_every({stack: StackSums(1, 10)})
    sums.add_eighth({stack: StackSums(count=8, delay_ns=80.6, parks=1, squares=3)})
    row = row_of(stack, sums.stacks(["wakers"])[stack])
    assert (row.kind, row.sema, row.return_pcs) == ("wakers", 0xA0, (1,))
    assert (row.labels, row.waker) == (stack.labels, stack.waker)
    assert (row.count, row.delay_ns) == (9, 91)
    assert (row.count_variance, row.delay_variance) == (56 * 3, 56 * 3 * 3)


@given(
    st.lists(
        st.tuples(*(st.integers(0, most) for most in (50, 1_000_000_000, 1000, 10_000))),
        max_size=8,
    )
)
def test_whatever_windows_saw_the_error_is_a_number(
    found: list[tuple[int, ...]],
) -> None:
    sums = SampledSums()
    for waits, delay_ns, runs, pause in found:
        sums.add_pause(pause)
        sums.add_window({A: StackSums(8 * waits, 8 * delay_ns, waits)}, 1, runs)
    assert sums.scale == 0 or sums.scale >= 1
    for value in (*sums.window_variances(A), *sums.window_variances("block")):
        assert math.isfinite(value)
        assert value >= 0


WINDOWS, RECORDINGS = 40, 2000
Generator = np.random.Generator


@pytest.mark.parametrize(
    ("per_run", "busy"),
    [(0.1, 1.0), (1.0, 0.3), (0.001, 1.0)],
    ids=["steady", "bursty", "rare"],
)
def test_95_percent_of_intervals_contain_the_actual_count_and_delay(
    per_run: float, busy: float
) -> None:
    """A stack with so many waits each time a goroutine runs, for a `busy` part of the time."""
    chance = np.random.default_rng(43)
    found = [recording(chance, per_run, busy) for _ in range(RECORDINGS)]
    for column in zip(*found, strict=True):
        inside = np.mean(
            [abs(estimate - actual) <= 1.96 * error for estimate, actual, error in column]
        )
        assert 0.93 <= inside <= 0.98


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_few_windows_that_are_alike_by_chance_are_not_taken_for_certain(number: int) -> None:
    """Of those whose error is below half: only these are shown."""
    chance = np.random.default_rng(43)
    found = [recording(chance, 0.1, 1.0, number) for _ in range(RECORDINGS)]
    for column in zip(*found, strict=True):
        inside = [
            abs(estimate - actual) <= 1.96 * error
            for estimate, actual, error in column
            if is_ranked(estimate, error**2)
        ]
        assert len(inside) > RECORDINGS / 2
        assert np.mean(inside) >= 0.93


Compared = tuple[float, float, float]
"""An estimate, what it should be, and its standard error."""


def recording(
    chance: Generator, per_run: float, busy: float, number: int = WINDOWS
) -> tuple[Compared, Compared]:
    """The count and the delay of a stack in a simulated recording, a tenth of it in windows.

    How often goroutines run varies by half between windows. Bursts are as long as a window.
    """
    pauses = 9 * chance.uniform(0.5, 1.5, number)
    lengths = np.array((pauses, np.ones(number)))
    is_burst = (chance.random(number) < busy).astype(np.float64)
    bursts = np.stack((chance.binomial(9, busy, number) / 9, is_burst))
    runs = chance.poisson(8000 * lengths * chance.lognormal(0, 0.5, lengths.shape))
    waits = chance.poisson(per_run * runs * bursts, runs.shape)
    tracked = chance.binomial(waits[1], 1 / 8, number)
    tracked_ns = chance.gamma(2 * tracked + 1e-9, 500, number)
    others_ns = chance.gamma(2 * (waits.sum() - tracked.sum()), 500)
    counted = chance.binomial(runs, 1 / 8, runs.shape).astype(float)
    sums = SampledSums()
    for in_pause, in_window, parks, ns in zip(*counted, tracked, tracked_ns, strict=True):
        sums.add_pause(in_pause)
        seen = StackSums(8.0 * parks, 8.0 * ns, float(parks))
        sums.add_window({A: seen} if parks else {}, 1, in_window)
    estimate = sums.stacks(["block"])[A]
    actual_ns = tracked_ns.sum() + others_ns
    return (
        (estimate.sampled.count, waits.sum(), math.sqrt(estimate.count_variance)),
        (estimate.sampled.delay_ns, actual_ns, math.sqrt(estimate.delay_variance)),
    )


def test_95_percent_of_intervals_of_one_wait_in_eight_contain_the_actual_values() -> None:
    """Which of eight waits in a row is tracked is random where goroutines stop in any order."""
    chance = np.random.default_rng(43)
    counts, delays = [], []
    for _ in range(RECORDINGS):
        waits = int(chance.poisson(800))
        delays_ns = chance.gamma(2, 500, waits)
        tracked_ns = delays_ns[: chance.binomial(waits, 1 / 8)]
        number = len(tracked_ns)
        sums = SampledSums()
        squares = float(tracked_ns @ tracked_ns)
        sums.add_eighth({A: StackSums(8 * number, 8 * tracked_ns.sum(), number, squares=squares)})
        found = sums.stacks(["block"])[A]
        counts.append(abs(found.sampled.count - waits) <= 1.96 * math.sqrt(found.count_variance))
        delays.append(
            abs(found.sampled.delay_ns - delays_ns.sum()) <= 1.96 * math.sqrt(found.delay_variance)
        )
    assert 0.93 <= np.mean(counts) <= 0.97
    assert 0.93 <= np.mean(delays) <= 0.97


@pytest.mark.parametrize("watched", [1.0, 0.125])
@pytest.mark.parametrize("again", [0.2, 0.5, 0.8])
def test_95_percent_of_intervals_contain_the_actual_values_where_parks_are_repeated(
    again: float, watched: float
) -> None:
    """The longer part of the delay lies between a wake and the next park of the same event.

    Whether a park will be repeated is a forecast, which is wrong for some.
    """
    chance = np.random.default_rng(43)
    counts, delays = [], []
    for _ in range(RECORDINGS):
        parks = int(chance.poisson(8000))
        is_repeated = chance.random(parks) < again
        delays_ns = chance.exponential(7_000, parks)
        queued_ns = chance.exponential(50_000, parks)
        changed = 1 + chance.normal(0, 0.03) * watched  # how often the tracked ones are there
        is_tracked = chance.random(parks) < changed / 8
        is_seen = is_tracked & (chance.random(parks) < watched)
        wrong = chance.normal(0, 0.2) * again * (1 - again)
        is_right = chance.random(parks) >= np.where(
            is_repeated, -wrong / again, wrong / (1 - again)
        )
        is_forecast = is_repeated == is_right
        tracked_ns = delays_ns[is_tracked]
        number = len(tracked_ns)
        sums = SampledSums()
        more = StackSums(
            count=8 * number,
            delay_ns=8 * tracked_ns.sum(),
            parks=number,
            runs=int(is_seen.sum()),
            again=int((is_seen & is_forecast).sum()),
            again_ns=float(queued_ns[is_seen & is_forecast].sum()),
            squares=float(tracked_ns @ tracked_ns),
        )
        sums.add_eighth({A: more})
        found = sums.stacks(["block"])[A]
        events = parks - is_repeated.sum()
        actual_ns = delays_ns.sum() + queued_ns[is_repeated].sum()
        counts.append(abs(found.sampled.count - events) <= 1.96 * math.sqrt(found.count_variance))
        delays.append(
            abs(found.sampled.delay_ns - actual_ns) <= 1.96 * math.sqrt(found.delay_variance)
        )
    assert 0.93 <= np.mean(counts) <= 0.97
    assert 0.92 <= np.mean(delays) <= 0.97


def test_a_copy_keeps_what_was_there() -> None:
    sums = SampledSums()
    sums.add_window({A: StackSums(80, 800, 10)}, 1000, 20)
    sums.add_window({A: StackSums(96, 800, 12)}, 1000, 20)
    sums.add_pause(60)
    kept = sums.copied()
    before = kept.stacks(["block"]), kept.window_variances(A), kept.scale
    sums.add_window({A: StackSums(720, 7200, 90)}, 1000, 10)
    sums.add_eighth({B: StackSums(8, 80, 1)})
    sums.add_uncharged({4: 5.0})
    assert (kept.stacks(["block"]), kept.window_variances(A), kept.scale) == before
    assert kept.uncharged == {}
    assert sums.stacks(["block"]) != before[0]
