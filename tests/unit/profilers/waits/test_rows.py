"""What a recording of waits records, by options; sums of stacks."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import pytest

from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.labels import key_hashes
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits.rows import Hold, StackSums, WaitsConfig

MS = 1_000_000


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        (Options(("block",)), {"block": True, "mutex": False}),
        (Options(("mutex",)), {"block": False, "mutex": True}),
        (Options(("wakers",)), {"block": True, "mutex": False, "wakers": True}),
        (
            Options(("runqueue",)),
            {"block": True, "mutex": False, "run_queue": True, "one_in_eight": True},
        ),
        (Options(("block", "mutex"), by_lock=True), {"by_lock": True, "few_locks": False}),
        (Options(("block", "mutex"), lock_labels=True), {"by_lock": True}),
        (Options(("block", "mutex"), runtime_locks=True), {"runtime_locks": True}),
        (Options(("block", "mutex"), earlier_waits=True), {"earlier_waits": True}),
        (Options(("block", "mutex"), labels=()), {"labels": False}),
        (Options(("block", "mutex"), labels=("tier",)), {"label_keys": key_hashes(("tier",))}),
        (Options(("block", "mutex"), max_overhead=1), {"one_in_eight": True}),
        (Options(("block", "mutex"), block_rate_ns=7), {"block_rate_ns": 7}),
        (Options(("block", "mutex"), mutex_fraction=9), {"mutex_fraction": 9}),
    ],
)
def test_an_option_changes_only_what_it_is_for(options: Options, changed: dict[str, Any]) -> None:
    usual = asdict(WaitsConfig.of(Options(("block", "mutex"))))
    assert usual == asdict(WaitsConfig(block=True, mutex=True, few_locks=True))
    assert asdict(WaitsConfig.of(options)) == {**usual, **changed}


@pytest.mark.parametrize(
    ("options", "tracks_waits", "has_waiters"),
    [
        (Options(("mutex",)), False, False),
        (Options(("mutex",), by_lock=True), False, True),
        (Options(("block",)), False, True),
        (Options(("mutex",), max_overhead=1), True, False),
        (Options(("runqueue",)), True, True),
    ],
)
def test_which_probes_and_sums_a_recording_has(
    options: Options, tracks_waits: bool, has_waiters: bool
) -> None:
    config = WaitsConfig.of(options)
    assert (config.tracks_waits, config.has_waiters) == (tracks_waits, has_waiters)


def numbered(step: int, **lengths: WaitHistogram) -> StackSums:
    """Sums of which the first is `step`, the second twice that, and so on."""
    names = [field.name for field in fields(StackSums) if field.name not in lengths]
    numbers: dict[str, Any] = {name: step * number for number, name in enumerate(names, 1)}
    return StackSums(**numbers | lengths)


def test_sums_of_stacks_add_up_field_by_field() -> None:
    lengths = WaitHistogram.of([MS])
    one = numbered(1, lengths=lengths, runnable_lengths=3 * lengths)
    other = numbered(10, lengths=2 * lengths, runnable_lengths=lengths)
    both = numbered(11, lengths=3 * lengths, runnable_lengths=4 * lengths)
    assert one + other == both
    assert both - other == one
    assert one.times(2) == one + one


def test_parks_that_go_on_are_one_event() -> None:
    """Of 5 tracked parks after which the goroutine ran, 2 were followed by another one."""
    seen = StackSums(count=80, delay_ns=80 * MS, parks=10, runs=5, again=2, again_ns=3 * MS)
    events = seen.as_events(seen)
    # Each of the 10 stands for 8, so each of the 5 for 16.
    assert (events.count, events.delay_ns) == (80 - 16 * 2, 80 * MS + 16 * 3 * MS)
    assert seen.as_events(StackSums()) == seen


def test_holds_add_up() -> None:
    lengths = WaitHistogram.of([MS])
    assert Hold(2, 3 * MS, lengths).plus(Hold(5, 7 * MS, 2 * lengths)) == Hold(
        7, 10 * MS, 3 * lengths
    )
