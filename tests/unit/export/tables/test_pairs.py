"""Who waited and who woke, as a table, as a sentence and compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebpfprof.export.tables import diff
from ebpfprof.export.tables.finding import finding
from ebpfprof.export.tables.largest import render
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profile.wakers import UNKNOWN_WAKER, WOKEN_BY
from ebpfprof.profilers.waits.kinds import WAKERS
from tests.unit.profile.test_wakers import MAIN, stack

SECOND = 1_000_000_000
RECEIVES = stack("runtime.chanrecv1", "main.handle")
LOCKS = stack("sync.(*Mutex).Lock", "example.com/team/shop/internal/sessions.(*Sessions).Touch")
SENDS = stack("runtime.chansend1", "main.submit")
CLOSES = stack("runtime.closechan", "main.stop")


def pairs(*samples: Sample) -> Profile:
    return WAKERS.make_profile(samples, [MAIN], time_ns=1, duration_ns=10 * SECOND)


PROFILE = pairs(
    Sample((*RECEIVES, WOKEN_BY, *SENDS), (150, 8 * SECOND)),
    Sample((*RECEIVES, WOKEN_BY, *SENDS, *stack("main.main")), (50, SECOND)),
    Sample((*RECEIVES, WOKEN_BY, *CLOSES), (1, 2 * SECOND)),
    Sample((*LOCKS, WOKEN_BY, UNKNOWN_WAKER), (7, SECOND)),
)


def test_a_row_for_each_place_that_waited_and_what_woke_it() -> None:
    lines = render(PROFILE, width=80, color=False).splitlines()
    assert lines == [
        " Delay  Count  Who waited                       Woken by",
        "9.00 s    200  main.handle                      main.submit",
        "               chan receive, main.handle.go:2   chan send, main.submit.go:2",
        "2.00 s      1  main.handle                      main.stop",
        "               chan receive, main.handle.go:2   chan close, main.stop.go:2",
        "1.00 s      7  ...l/sessions.(*Sessions).Touch  [not known]",
        "               ...sions.(*Sessions).Touch.go:2",
    ]


def test_in_short_a_row_has_one_line() -> None:
    lines = render(PROFILE, width=80, limit=2, color=False).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["9.00", "s", "200", "main.handle", "main.submit"],
        ["2.00", "s", "1", "main.handle", "main.stop"],
    ]


@pytest.mark.parametrize(
    ("width", "shown"),
    [(120, ["p50", "p99", "Max"]), (60, ["p99", "Max"]), (52, ["p99"]), (40, [])],
)
def test_quantiles_of_the_waits_until_a_wake_are_shown_where_they_fit(
    width: int, shown: list[str]
) -> None:
    first, _, *others = PROFILE.samples
    lengths = WaitHistogram.of([40_000_000] * 197 + [900_000_000] * 3)
    known = replace(first, values=(200, 9 * SECOND), lengths=lengths)
    profile = replace(PROFILE, samples=(known, *others))
    heading, row, *_ = render(profile, width=width, color=False).splitlines()
    assert heading.split()[2:-4] == shown
    lengths_ms = {"p50": "40 ms", "p99": "910 ms", "Max": "910 ms"}
    assert row.split("200", 1)[1].split("main")[0].split("  ")[1:-1] == [
        lengths_ms[name] for name in shown
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_it_is_not_a_wider_than_the_terminal(width: int) -> None:
    long = replace(PROFILE.samples[3], variance=1.0e16)
    text = render(replace(PROFILE, samples=(long,)), width=width, color=False)
    assert max(map(len, text.splitlines())) <= max(width, 50)
    assert "+-10%" in text


def test_what_stands_out_is_reported_with_what_woke() -> None:
    assert finding(PROFILE) == (
        "75 % of waiting: chan receive in main.handle (main.handle.go:2), woken by main.submit "
        "(main.submit.go:2), mean 45.0 ms."
    )


def test_a_pair_that_grew_is_distinguished_from_others_of_the_same_place() -> None:
    more = replace(PROFILE.samples[2], values=(2, 5 * SECOND))
    later = replace(PROFILE, samples=(*PROFILE.samples[:2], more, PROFILE.samples[3]))
    (change,) = diff.changes(later, PROFILE)
    assert (change.function, change.waker, change.difference) == (
        *("main.handle", "main.stop"),
        3 * SECOND,
    )
    text = diff.render(later, PROFILE, width=80, color=False)
    assert "woken by main.stop" in text
