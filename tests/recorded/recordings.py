"""What was recorded: of which program, with which options, and while it did what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ebpfprof.profilers.waits.collector import MAX_STACKS
from tests.recorded.program import OLD_SHOP, PROGRAM, SHOP, Program


@dataclass(frozen=True)
class Recording:
    """One recording of a program.

    The program did `before` before the recording began, `first` until its middle, and `then` until
    its end. `at_the_middle` has the maps that are kept in the middle, by BPF program. The kernel
    has room for `max_stacks`. In windows there are `least_windows` at least.
    """

    program: Program
    options: Mapping[str, Any]
    first: Sequence[str]
    then: Sequence[str] = ()
    before: Sequence[str] = ()
    at_the_middle: Mapping[str, Sequence[str]] = field(default_factory=dict)
    max_stacks: int = MAX_STACKS
    least_windows: int = 0


CHANGING: Final = ("waits", "totals", "lengths", "locks")
"""The maps of waits that change while every wait is recorded."""
SUMS: Final = frozenset({"totals", "lengths", "spreads", "pairs", "locks"})
"""The maps of sums of waits."""
_WAITS: Final = {
    "kinds": ["block", "mutex"],
    "by_lock": True,
    "lock_labels": True,
    "open_waits": True,
}
_EXACT: Final = {**_WAITS, "kinds": ["block", "mutex", "wakers", "cpu"], "kernel": False}
_SERVES: Final = ("serve 40",)

RECORDINGS: Final[Mapping[str, Recording]] = {
    "exact": Recording(
        PROGRAM,
        _WAITS,
        ("contend 2",),
        ("contend 3", "leave"),
        at_the_middle={"waits": CHANGING},
    ),
    "windows": Recording(
        PROGRAM,
        {**_WAITS, "max_overhead": 8.0},
        ("contend 2",),
        ("contend 8", "hammer 3500", "leave", "hammer 1000"),
        least_windows=4,
    ),
    "cpu": Recording(
        PROGRAM,
        {"kinds": ["cpu"], "hz": 997, "kernel": False},
        ("compute 150",),
        ("compute 150",),
        at_the_middle={"cpu": ("samples",)},
    ),
    "requests": Recording(SHOP, _EXACT, _SERVES),
    "bounded": Recording(
        SHOP,
        {**_WAITS, "max_overhead": 2.0},
        ("serve 1500",),
        least_windows=4,
    ),
    "eighth": Recording(
        SHOP,
        {**_WAITS, "kinds": ["block", "mutex", "wakers"], "one_in_eight": True},
        ("serve 400",),
    ),
    "lengths": Recording(SHOP, {**_WAITS, "kinds": ["block", "mutex", "wakers"]}, ("serve 1500",)),
    "idle": Recording(SHOP, _EXACT, ("rest 300",)),
    "hangs": Recording(
        SHOP, {**_EXACT, "max_overhead": 8.0}, ("rest 7500",), before=("deadlock", "hang")
    ),
    "losses": Recording(SHOP, _EXACT, _SERVES, max_stacks=4),
    "oldgo": Recording(OLD_SHOP, _EXACT, _SERVES),
}
