"""Comments of a profile: between two snapshots, they describe that time only."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.overhead.cost import Overhead, Runs
from ebpfprof.profile.losses import Loss
from ebpfprof.profilers.account import RecordingAccount, loss_lines
from ebpfprof.profilers.waits.coverage import Deviation, WaitsCoverage

S = 1_000_000_000
LOST, FULL = Loss("lost", "events lost", 5), Loss("full", "tables full", 1)


def overhead(hits: int, cpu_s: int) -> Overhead:
    return Overhead(Runs(hits, hits * 1000.0, hits), Runs(), 1000.0, cpu_s * S)


def coverage(
    of_s: int,
    *,
    every_s: int = 0,
    eighth_s: int = 0,
    windows_s: int = 0,
    windows: int = 0,
    variance: float = 0.0,
) -> WaitsCoverage:
    deviation = Deviation(count=10.0 * of_s, delay_ns=100.0 * of_s, delay_variance=variance)
    times_ns = of_s * S, every_s * S, eighth_s * S, windows_s * S
    return WaitsCoverage(*times_ns, windows, {"block": deviation})


EARLIER = RecordingAccount(
    "block",
    "ebpfprof: block profile of process 7",
    "every event",
    length_ns=60 * S,
    remarks=("sampled somehow",),
    overhead=overhead(1000, 10),
    losses=(LOST,),
    coverage=coverage(60, windows_s=6, windows=40, variance=4.0e6),
    spread={"a": (1000, 100.0), "b": (500, 25.0)},
    counted={"{} stacks cut": 3},
    events=5000,
)
LATER = replace(
    EARLIER,
    length_ns=65 * S,
    overhead=overhead(1100, 12),
    losses=(replace(LOST, count=7), FULL),
    coverage=coverage(65, windows_s=7, windows=50, variance=4.0e6 + 900.0),
    spread={"a": (1000, 100.0), "b": (600, 61.0), "c": (100, 1.0)},
    counted={"{} stacks cut": 3, "{} stacks lost": 2},
    events=6000,
)


def test_comments_describe_the_time_between_two_snapshots() -> None:
    part = LATER - EARLIER
    assert part.comments() == (
        "ebpfprof: block profile of process 7, 5.000 s, one wait in eight",
        "sampled somehow",
        "overhead of all profiles: 200 us, 0.01 % of the process's CPU time "
        "(100 probe hits of 2.0 us)",
        "incomplete: 2 events lost (lost)",
        "incomplete: 1 tables full (full)",
        # 1,000 events are in it, scaled from an eighth of those in a fifth of the time.
        "incomplete in total: at most 11 % of what happened",
        "sampled one wait in eight, 20 % of the time, and scaled",
        "+-0 % on counts, +-6 % on delays (one standard error)",
        "at most +-6 % on the ten stacks with the longest delays (one standard error)",
        "2 stacks lost",
    )
    assert dict(part.spread) == {"b": (100, 36.0), "c": (100, 1.0)}


def test_accounts_of_parts_add_up_to_the_whole() -> None:
    assert (EARLIER + (LATER - EARLIER)).comments() == LATER.comments()


def test_with_a_single_window_no_error_is_known() -> None:
    single = replace(LATER, coverage=coverage(65, windows_s=7, windows=41)) - EARLIER
    assert "standard error not known, from a single window" in single.comments()
    assert not any("ten stacks" in each for each in single.comments())


def test_a_time_without_windows_has_the_errors_of_one_wait_in_eight() -> None:
    part = replace(LATER, coverage=coverage(65, eighth_s=5, windows_s=6, windows=40)) - EARLIER
    said = part.comments()
    assert said[0].endswith(" s, one wait in eight")
    assert "sampled one wait in eight, and scaled" in said
    assert any("on delays (one standard error)" in each for each in said)


def test_what_followed_every_wait_is_named() -> None:
    part = replace(LATER, coverage=coverage(65, every_s=2, eighth_s=3, windows_s=6, windows=40))
    assert (part - EARLIER).comments()[0].endswith(", every event at first, then one wait in eight")


def test_of_a_time_in_which_every_wait_was_recorded_no_scaling_is_mentioned() -> None:
    """Also after a time with pauses."""
    part = replace(LATER, coverage=coverage(65, every_s=5, windows_s=6, windows=40)) - EARLIER
    said = " ".join(part.comments())
    assert not any(word in said for word in ("eight", "windows", "sampled 0", "error"))


def test_losses_are_reported_in_proportion() -> None:
    few = replace(EARLIER, coverage=None, events=58_000, losses=(replace(LOST, count=1),))
    assert "incomplete: 1 events lost (lost)" in few.comments()
    proportion = "incomplete in total: less than 0.01 % of what happened"
    assert f"{proportion}, too little to change what the profile shows" in few.comments()
    assert not any("in all" in each for each in replace(few, losses=()).comments())
    many = replace(few, losses=(LOST, replace(FULL, count=600)))
    assert "incomplete in total: at most 1 % of what happened" in many.comments()
    # The terminal has all of what matters, and a line for what does not; none for the smallest.
    nothing = replace(few, losses=()).completeness
    footnote = ", too little to change what the profile shows; its comments have the details"
    assert loss_lines(few.losses, [nothing, few.completeness]) == []
    assert loss_lines(few.losses, [nothing, few.completeness], is_long=True) == [
        proportion + footnote
    ]
    some = replace(few, losses=(replace(LOST, count=300),))
    assert loss_lines(some.losses, [nothing, some.completeness]) == [
        f"incomplete in total: at most 0.51 % of what happened{footnote}"
    ]
    assert loss_lines(many.losses, [many.completeness, few.completeness]) == [
        "incomplete: 5 events lost (lost)",
        "incomplete: 600 tables full (full)",
        "incomplete in total: at most 1 % of what happened",
    ]
    assert loss_lines((), [nothing]) == loss_lines((), []) == []
    # Where there is no profile to compare with, every loss is reported.
    assert loss_lines((LOST,), []) == ["incomplete: 5 events lost (lost)"]


def test_errors_too_large_to_say_anything_have_no_digits() -> None:
    spread = {"a": (1000, 50.0**2), "b": (500, 100.0**2), "rare": (10, 119.0**2)}
    mixed = replace(LATER, spread=spread).comments()
    assert (
        "at most +-20 % on 2 of the ten stacks with the longest delays (one standard error): the "
        "others were recorded too rarely for an estimate"
    ) in mixed
    rare = replace(LATER, spread={"rare": (10, 119.0**2)}).comments()
    assert "the errors of the ten stacks with the longest delays are above 100 %" in rare
    assert not any("1190" in comment for comment in (*mixed, *rare))
