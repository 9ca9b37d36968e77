"""The table of locks: what it says, and that no target reaches the terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.cells import cell_len

from ebpfprof.export.tables.locks import render
from ebpfprof.profile.model import Frame, Location, Lock, Sample
from ebpfprof.profile.wait_histogram import WaitHistogram
from tests.unit.export.tables.test_operations import HOSTILE

MS = 1_000_000
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def sample(count: int, ns: int, *functions: str, line: int = 7) -> Sample:
    locations = tuple(
        Location(0x400000 + n, None, (Frame(function, "/src/shop/x.go", line),))
        for n, function in enumerate(functions, 1)
    )
    return Sample(locations, (count, ns))


def lock(
    name: str | None = "main.registry.mu",
    *,
    releases: Sequence[Sample] = (),
    waits: Sequence[Sample] = (),
    lock_type: str = "sync.Mutex",
    holds: int = 0,
    held_ns: int = 0,
) -> Lock:
    return Lock(0xC000012080, lock_type, name, tuple(waits), tuple(releases), holds, held_ns)


BUSY = lock(
    releases=[
        sample(10, 30_000_000, "sync.(*Mutex).Unlock", "main.put"),
        sample(2, 6_000_000, "sync.(*Mutex).Unlock", "main.get", line=9),
    ],
    waits=[sample(12, 36_100_000, "sync.(*Mutex).Lock", "main.get")],
    holds=4,
    held_ns=8_000_000,
)
CALM = lock(
    None,
    releases=[sample(1, 4_000_000, "sync.(*RWMutex).RUnlock", "main.read")],
    lock_type="sync.RWMutex",
)


def test_the_table_in_full() -> None:
    assert render([BUSY, CALM], width=None, color=False) == (
        "  Delay  Share  Count     Mean     Held  Lock\n"
        "36.0 ms  90.0%     12  3.00 ms  2.00 ms  main.registry.mu (sync.Mutex at 0xc000012080)\n"
        "30.0 ms            10  3.00 ms             released by main.put, x.go:7: Mutex.Unlock\n"
        "6.00 ms             2  3.00 ms             released by main.get, x.go:9: Mutex.Unlock\n"
        "36.1 ms            12  3.01 ms             waited for by main.get, x.go:7: Mutex.Lock\n"
        "4.00 ms  10.0%      1  4.00 ms        -  sync.RWMutex at 0xc000012080\n"
        "4.00 ms             1  4.00 ms"
        "             released by main.read, x.go:7: RWMutex.RUnlock\n"
    )


def test_a_lock_of_unknown_type_is_a_semaphore() -> None:
    shown = render([lock(None, lock_type="")], width=None, color=False)
    assert shown.splitlines()[1].endswith("  semaphore at 0xc000012080")


def test_a_lock_without_delay_has_no_share_and_no_mean() -> None:
    shown = render([lock("main.mu")], width=None, color=False)
    assert shown.splitlines()[1].split()[:5] == ["0", "ns", "-", "0", "-"]


def test_places_beyond_the_first_are_added_up() -> None:
    releases = [
        sample(n, n * 1000, "sync.(*Mutex).Unlock", f"main.f{n}", line=n) for n in range(1, 6)
    ]
    waits = [sample(n, n, "sync.(*Mutex).Lock", f"main.f{n}") for n in range(1, 5)]
    _, _, *places = render(
        [lock(releases=releases, waits=waits)], width=None, color=False
    ).splitlines()
    assert [" ".join(place.split()) for place in places] == [
        "5.00 us 5 1.00 us released by main.f5, x.go:5: Mutex.Unlock",
        "4.00 us 4 1.00 us released by main.f4, x.go:4: Mutex.Unlock",
        "3.00 us 3 1.00 us released by main.f3, x.go:3: Mutex.Unlock",
        "3.00 us 3 1.00 us released in 2 more places",
        "4 ns 4 1 ns waited for by main.f4, x.go:7: Mutex.Lock",
        "3 ns 3 1 ns waited for by main.f3, x.go:7: Mutex.Lock",
        "2 ns 2 1 ns waited for by main.f2, x.go:7: Mutex.Lock",
        "1 ns 1 1 ns waited for in 1 more place",
    ]
    shown = render([lock(releases=releases[:3])], width=None, color=False)
    assert "main.f1" in shown
    assert "more place" not in shown


def test_locks_beyond_the_limit_are_counted() -> None:
    lines = render([BUSY] * 12, limit=10, width=None, color=False).splitlines()
    assert sum("main.registry.mu" in line for line in lines) == 10
    assert lines[-1] == "... and 2 more"
    assert "more" not in render([BUSY] * 10, limit=10, width=None, color=False)


def test_shares_are_of_all_locks_including_hidden_ones() -> None:
    shown = render([BUSY, BUSY, BUSY, BUSY], limit=1, width=None, color=False)
    assert " 25.0% " in shown


def test_addresses_and_operations_are_left_out_to_fit() -> None:
    lines = render([BUSY, CALM], width=80, color=False).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].endswith("  2.00 ms  main.registry.mu")
    assert lines[2].endswith("  3.00 ms             released by main.put, x.go:7")
    assert lines[4].endswith("  3.01 ms             waited for by main.get, x.go:7")
    assert lines[5].endswith("  -  sync.RWMutex at 0xc000012080")


def test_a_narrow_terminal_still_shows_some_of_each_name() -> None:
    lines = render([BUSY], width=10, color=False).splitlines()
    assert lines[1].endswith("  2.00 ms  main.registry.mu")
    assert lines[4].endswith("    waited for by ....go:7")


def test_goroutines_that_still_wait_are_shown_last() -> None:
    hung = replace(CALM, still_waiting=(sample(3, 9_000_000, "sync.(*Mutex).Lock", "main.stuck"),))
    *_, last = render([hung], width=None, color=False).splitlines()
    assert last.split(maxsplit=5) == [
        *("9.00", "ms", "3", "3.00", "ms"),
        "still waited for by main.stuck, x.go:7: Mutex.Lock",
    ]


def test_wide_characters_do_not_push_the_table_beyond_its_width() -> None:
    wide = lock("main." + "世" * 60, releases=[sample(1, 1, "main." + "世" * 60)])
    shown = COLOR.sub("", render([wide], width=80, color=True))
    assert max(map(cell_len, shown.splitlines())) <= 80
    assert "世" in shown


def test_colour_adds_only_colour() -> None:
    coloured = render([BUSY, CALM], width=80, color=True)
    assert "\x1b[1m" in coloured
    assert "\x1b[2m" in coloured
    plain = [line.rstrip() for line in COLOR.sub("", coloured).splitlines()]
    assert plain == render([BUSY, CALM], width=80, color=False).splitlines()


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_target_controls_the_terminal(text: str, color: bool) -> None:
    """In the lock's name and type, in functions, and in files."""
    places = [
        Sample((Location(1, None, (Frame(f"main.{text}", f"/src/{text}", 1),)),), (1, 1)),
    ]
    named = lock(f"main.{text}", releases=places, waits=places, lock_type=f"sync.{text}")
    shown = render([named], width=None, color=color)
    shown = COLOR.sub("", shown) if color else shown
    assert all(c == "\n" or c.isprintable() for c in shown)
    visible = text.encode("unicode_escape").decode("ascii").replace("\\\\", "\\")
    # Name and type; then the function, the file and the operation, twice. Of a file, what is
    # behind its last slash.
    in_file = visible.rpartition("/")[2]
    assert shown.count(visible) >= 2 + 2 * 2
    assert shown.count(in_file) >= 2 + 2 * 3
    assert len(shown.splitlines()) == 4


@pytest.mark.parametrize("letter", ["x", "\x1b", "\U000e0001", "世"])
def test_long_names_are_cut_on_the_left_and_are_ascii_without_colour(letter: str) -> None:
    named = lock(
        "main." + letter * 100_000,
        releases=[sample(1, 1, "sync.(*Mutex).Unlock", letter * 100_000)],
    )
    shown = render([named], width=None, color=False)
    assert shown.isascii()
    assert "0xc000012080)\n" in shown
    assert ", x.go:7: Mutex.Unlock\n" in shown
    assert len(shown) < 20_000


def test_without_locks_the_table_has_no_rows() -> None:
    assert render([], width=None, color=False).split() == [
        "Delay",
        "Share",
        "Count",
        "Mean",
        "Held",
        "Lock",
    ]


def with_lengths() -> Lock:
    """Of 200 releases and holds, one in a hundred was ten times as long."""
    delays = WaitHistogram.of([MS] * 197 + [10 * MS] * 3)
    release = sample(200, 227 * MS, "sync.(*Mutex).Unlock", "main.put")
    return replace(
        lock(holds=200, held_ns=227 * MS, releases=[replace(release, lengths=delays)]),
        hold_lengths=WaitHistogram.of([2 * MS] * 197 + [20 * MS] * 3),
    )


def test_quantiles_of_delays_and_holds_are_beside_the_means() -> None:
    assert render([with_lengths()], width=None, color=False) == (
        " Delay   Share  Count     Mean     p50    p99    Max     Held  Held p99  Held max  Lock\n"
        "227 ms  100.0%    200  1.14 ms  1.0 ms  10 ms  10 ms  1.14 ms     20 ms     20 ms"
        "  main.registry.mu (sync.Mutex at 0xc000012080)\n"
        "227 ms            200  1.14 ms  1.0 ms  10 ms  10 ms"
        "                                 released by main.put, x.go:7: Mutex.Unlock\n"
    )


@pytest.mark.parametrize(
    ("width", "of_event"),
    [
        (110, ["Mean", "p50", "p99", "Max", "Held", "Held", "p99", "Held", "max"]),
        (80, ["Mean", "p99", "Held"]),
        (66, ["Mean", "Held"]),
    ],
)
def test_as_many_quantiles_as_fit_are_shown(width: int, of_event: list[str]) -> None:
    lines = render([with_lengths()], width=width, color=False).splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].split() == ["Delay", "Share", "Count", *of_event, "Lock"]


def test_quantiles_of_few_holds_are_not_shown() -> None:
    few = replace(with_lengths(), hold_lengths=WaitHistogram.of([MS] * 3).standing_for(24))
    heading, row, _ = render([few], width=None, color=False).splitlines()
    assert row[heading.index("Held p99") : heading.index("  Held max")].strip() == "-"
