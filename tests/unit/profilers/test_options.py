"""Recording options: those of all kinds, and those that single kinds declare."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from ebpfprof.profilers.options import Options
from ebpfprof.profilers.registry import kinds, options_of_kinds


def test_missing_options_have_the_default_of_their_kind() -> None:
    options = Options(hz=500, by_lock=True)
    assert (options.kinds, options["hz"], options["by_lock"]) == (("block",), 500, True)
    others = options_of_kinds().keys() - {"hz", "by_lock"}
    assert len(others) >= 6
    for name in others:
        assert options[name] == options_of_kinds()[name][0].default


@pytest.mark.parametrize("name", ["herz", "of_kinds"])
def test_options_that_no_kind_declares_are_refused(name: str) -> None:
    given: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=f"no recording option '{name}'"):
        Options(**given)
    with pytest.raises(KeyError):
        Options()["herz"]


def test_options_are_compared_by_value() -> None:
    options = Options(("cpu",), hz=500, labels=("tier",))
    assert options == Options(kinds=("cpu",), hz=500, labels=("tier",))
    assert len({options, Options(("cpu",), hz=500, labels=("tier",))}) == 1
    assert options != Options(("cpu",), hz=501, labels=("tier",))
    changed = options.replace(hz=99, labels=None)
    assert (changed, options["hz"]) == (Options(("cpu",)), 500)
    with pytest.raises(FrozenInstanceError):
        options.kinds = ("block",)  # type: ignore[misc]  # it must fail
    with pytest.raises(TypeError):
        options.of_kinds["hz"] = 1  # type: ignore[index]  # it must fail
    with pytest.raises(TypeError):
        replace(options, kinds=("block",))  # it knows nothing of the kinds' own options


@pytest.mark.parametrize(
    ("options", "recorded", "takes_any", "is_bounded"),
    [
        (Options(("cpu",), max_overhead=1), ["cpu"], True, False),
        (Options(("mutex", "block"), max_overhead=1), ["block", "mutex"], False, True),
        (Options(("block", "cpu"), max_overhead=0), ["block", "cpu"], False, False),
        (Options(("block", "cpu"), kinds_given=False), ["block", "cpu"], True, False),
        (Options(("block",), kinds_given=False), ["block"], False, False),
        (Options(("mutex",), open_waits=True), ["mutex", "open"], False, False),
    ],
)
def test_recorded_kinds_follow_from_the_chosen_ones(
    options: Options, recorded: list[str], takes_any: bool, is_bounded: bool
) -> None:
    assert [kind.name for kind in options.recorded_kinds] == recorded
    assert (options.takes_any_program, options.is_bounded) == (takes_any, is_bounded)


def test_each_kind_says_which_events_are_recorded() -> None:
    options = Options(block_rate_ns=1000, mutex_fraction=5, hz=50)
    sampled = "allocations that the program sampled itself, until"
    assert {kind.name: options.sampling(kind.name) for kind in kinds()} == {
        "block": "sampled at a rate of 1000 ns",
        "mutex": "one release in 5, scaled",
        "wakers": "sampled at a rate of 1000 ns",
        "runqueue": "after one wait in eight",
        "cpu": "50 samples per second of CPU time",
        "wall": "goroutine samples, at most 100 a second",
        "goroutine": "every goroutine",
        "heap": f"{sampled} the latest garbage collection",
        "allocs": f"{sampled} the latest garbage collection",
        "threads": "every thread",
        "threadcreate": "every thread of Go's list",
        "open": "every goroutine",
    }
    assert Options(fresh_heap=True).sampling("heap") == f"{sampled} now"
    assert Options().sampling("block") == Options().sampling("mutex") == "every event"
