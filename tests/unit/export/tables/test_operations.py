"""The table for people: what is summed, what it says, and that no target reaches the terminal."""

import random
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from ebpfprof.export.tables.largest import render
from ebpfprof.export.tables.operations import OperationSums, operation_sums
from ebpfprof.profile.model import Frame, Location, Mapping, Profile, Sample
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.waits.kinds import BLOCK

MAIN = Mapping(0x400000, 0x500000, 0, "/srv/api", "")


def stack(*functions: str) -> tuple[Location, ...]:
    """One location a function, leaf first, at line 10, 20, ... of its file."""
    return tuple(
        Location(0x400000 + n, MAIN, (Frame(function, f"/src/{n}.go", 10 * n),))
        for n, function in enumerate(functions, 1)
    )


Stack = tuple[tuple[Location, ...], int, int]
"""Locations, count, nanoseconds."""


def rows_of(*stacks: Stack) -> list[OperationSums]:
    return operation_sums(profile_of(*stacks).samples)


def profile_of(*samples: Stack) -> Profile:
    return BLOCK.make_profile(
        [Sample(locations, (count, ns)) for locations, count, ns in samples],
        [MAIN],
        time_ns=0,
        duration_ns=0,
    )


def test_stacks_with_equal_operation_and_line_share_a_row() -> None:
    store = ("runtime.chanrecv1", "main.store")
    rows = rows_of(
        ((*stack(*store, "main.a"),), 2, 300),
        ((*stack(*store, "main.b"),), 3, 100),
        ((*stack("runtime.chansend1", "main.store"),), 5, 600),
    )
    assert rows == [
        OperationSums("chan send", "main.store", "/src/2.go", 20, 5, 600, 0.6),
        OperationSums("chan receive", "main.store", "/src/2.go", 20, 5, 400, 0.4),
    ]
    assert [row.mean for row in rows] == [120, 80]


def test_the_largest_rows_come_first_and_shares_are_of_all_rows() -> None:
    samples = [(stack("runtime.selectgo", f"main.f{n}"), 1, n) for n in range(1, 101)]
    random.Random(1).shuffle(samples)
    rows = rows_of(*samples)[:3]
    assert [row.function for row in rows] == ["main.f100", "main.f99", "main.f98"]
    assert rows[0].share == 100 / 5050


def test_equal_rows_are_ordered_by_name() -> None:
    samples = [(stack("runtime.selectgo", f"main.{name}"), 1, 1) for name in "bdac"]
    assert [row.function[-1] for row in rows_of(*samples)] == list("abcd")


def test_a_profile_without_delay_has_no_shares() -> None:
    (row,) = rows_of((stack("main.f"), 0, 0))
    assert (row.share, row.mean) == (0, 0)


def test_inlined_frames_count_as_frames() -> None:
    frames = (Frame("sync.(*Mutex).Lock", "/m.go", 1), Frame("main.f", "/main.go", 7))
    (row,) = rows_of(((Location(1, None, frames),), 1, 1))
    assert (row.operation, row.function, row.file, row.line) == (
        "Mutex.Lock",
        "main.f",
        "/main.go",
        7,
    )


SHOP = profile_of(
    (
        stack("sync.(*Mutex).Lock", "github.com/acme/shop/internal/orders.(*Store).Put"),
        40,
        61_500_000_000,
    ),
    (stack("runtime.chanrecv1", "main.worker"), 1_200, 3_600_000),
    ((Location(0x400100, MAIN, ()),), 1, 5),
)


def test_the_table_in_full() -> None:
    assert render(SHOP, width=None, color=False) == (
        "   Delay   Share  Count     Mean  Operation     Called from\n"
        "1.02 min  100.0%     40   1.54 s  Mutex.Lock    "
        "github.com/acme/shop/internal/orders.(*Store).Put\n"
        "                                                /src/2.go:20\n"
        " 3.60 ms    0.0%   1200  3.00 us  chan receive  main.worker\n"
        "                                                /src/2.go:20\n"
        "    5 ns    0.0%      1     5 ns  [unknown]     [unknown]\n"
    )


def test_names_are_cut_on_the_left_to_fit() -> None:
    lines = render(SHOP, width=80, color=False).splitlines()
    assert max(map(len, lines)) == 80
    assert lines[1].endswith("Mutex.Lock    .../internal/orders.(*Store).Put")


def test_a_narrow_terminal_still_shows_some_of_each_name() -> None:
    assert " ...l/orders.(*Store).Put\n" in render(SHOP, width=10, color=False)


def test_colour_adds_only_colour() -> None:
    coloured = render(SHOP, width=80, color=True)
    assert "\x1b[1m" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in plain.splitlines()] == render(
        SHOP, width=80, color=False
    ).splitlines()


def test_the_environment_does_not_change_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = render(SHOP, width=80, color=True)
    for name, value in {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "20", "LINES": "5"}.items():
        monkeypatch.setenv(name, value)
    assert render(SHOP, width=80, color=True) == expected


@pytest.mark.parametrize("kind", ["block", "mutex"])
def test_the_table_of_an_empty_profile_says_so(kind: str) -> None:
    text = render(replace(profile_of(), kind=kind), width=80, color=True)
    assert text.startswith("Nothing was recorded: ")
    assert text.endswith(".\n")


HOSTILE = [
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "a\rb\nc\td\be\x7f",
    "‮gnp.exe",
    "\u2028next",
    "\udcff",
    "\x00",
    "[red]x[/red]",
    "[link=http://x]y[/link]",
    ":boom:",
    "\\x1b",
]


@pytest.mark.parametrize("color", [True, False])
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_target_controls_the_terminal(text: str, color: bool) -> None:
    location = Location(1, None, (Frame(f"main.{text}", f"/{text}", 1),))
    shown = render(profile_of(((location,), 1, 1)), width=None, color=color)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", shown) if color else shown
    assert all(c == "\n" or c.isprintable() for c in shown)
    # Visible, not dropped: in the operation, the function and the file.
    assert shown.count(text.encode("unicode_escape").decode("ascii").replace("\\\\", "\\")) == 3
    assert len(shown.splitlines()) == 3


def test_without_colour_the_table_is_ascii() -> None:
    profile = profile_of((stack("runtime.selectgo", "main.größe"), 1, 1))
    assert render(profile, width=80, color=False).isascii()
    assert "größe" in render(profile, width=80, color=True)


def test_wide_characters_do_not_push_the_table_beyond_its_width() -> None:
    profile = profile_of((stack("runtime.selectgo", "main." + "世" * 60), 1, 1))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", render(profile, width=80, color=True))
    assert max(map(cell_len, shown.splitlines())) <= 80
    assert "世" in shown


def test_a_name_of_a_megabyte_is_cut() -> None:
    profile = profile_of((stack("runtime.selectgo", "main." + "x" * (1 << 20)), 1, 1))
    assert len(render(profile, width=None, color=False)) < 5000
    operation = profile_of((stack("main." + "x" * (1 << 20)), 1, 1))
    assert max(map(len, render(operation, width=80, color=False).splitlines())) <= 200


def test_where_the_program_calls_a_library_is_shown_with_it() -> None:
    get = ("runtime.selectgo", "google.golang.org/grpc/internal/transport.(*controlBuffer).get")
    samples = (
        (stack(*get, "example.com/shop/cart.(*Cart).Sync", "main.main"), 1, 300),
        (stack(*get, "example.com/shopping.F", "main.poll"), 1, 200),
        (stack(*get, "google.golang.org/grpc.Serve"), 1, 900),
    )
    profile = profile_of(*samples)
    (row,) = operation_sums(profile.samples, "example.com/shop")
    assert row.program
    assert row.program.function == "example.com/shop/cart.(*Cart).Sync"
    (row,) = operation_sums(profile.samples)  # without the module's name: package main
    assert row.program
    assert row.program.function == "main.main"
    text = render(replace(profile, module="example.com/shop"), width=None, color=False)
    assert (
        "\n" + text.splitlines()[-1].strip() == "\nfrom example.com/shop/cart.(*Cart).Sync, 3.go:30"
    )


def test_a_line_of_the_program_itself_needs_no_other() -> None:
    samples = (
        (stack("runtime.selectgo", "main.wait", "main.main"), 1, 300),
        (stack("runtime.selectgo", "example.com/shop%2ev2.Wait", "main.main"), 1, 300),
    )
    rows = operation_sums(profile_of(*samples).samples, "example.com/shop.v2")
    assert [row.program for row in rows] == [None, None]


def lengths_table(
    width: int | None, lengths: WaitHistogram, *, variance: float = 0.0, unknown: int = 0
) -> str:
    count = int(lengths.total) + unknown
    sample = Sample(
        stack("runtime.chanrecv1", "main.(*shop).takeOrder"),
        (count, count * 2_300_000),
        variance=(0.05 * count * 2_300_000) ** 2 if variance else 0.0,
        count_variance=variance,
        lengths=lengths,
    )
    profile = BLOCK.make_profile([sample], [MAIN], time_ns=0, duration_ns=0)
    return render(profile, width=width, color=False)


LONG_TAIL = WaitHistogram.of([1_000_000] * 9890 + [40_000_000] * 109 + [800_000_000])


def test_quantiles_of_the_lengths_are_beside_the_mean() -> None:
    headings, row, _ = lengths_table(None, LONG_TAIL).splitlines()
    assert re.split("  +", headings.strip())[2:7] == ["Count", "Mean", "p50", "p99", "Max"]
    assert re.split("  +", row.strip())[2:7] == ["10000", "2.30 ms", "1.0 ms", "40 ms", "770 ms"]


@pytest.mark.parametrize(
    ("width", "variance", "headings"),
    [
        (100, 0.0, ["Mean", "p50", "p99", "Max"]),
        (88, 0.0, ["p50", "p99", "Max"]),
        (80, 0.0, ["p99", "Max"]),
        (80, 7e4, ["p99", "Max"]),
        (72, 7e4, ["p99"]),
    ],
)
def test_a_narrow_table_has_the_most_telling_of_them(
    width: int, variance: float, headings: list[str]
) -> None:
    text = lengths_table(width, LONG_TAIL, variance=variance)
    shown = text.split("Count", 1)[1].split("Operation", 1)[0].split()
    assert shown == headings
    assert max(map(len, text.splitlines())) <= width


def test_a_quantile_that_is_not_known_is_a_dash() -> None:
    _, row, _ = lengths_table(None, WaitHistogram.of([1_000_000] * 50)).splitlines()
    assert re.split("  +", row.strip())[3:7] == ["2.30 ms", "1.0 ms", "-", "1.0 ms"]


def test_without_a_known_quantile_there_are_no_columns_for_them() -> None:
    few = WaitHistogram.of([1_000_000] * 3)
    headings, row, *_ = lengths_table(None, few, unknown=997).splitlines()
    assert re.split("  +", headings.strip())[2:5] == ["Count", "Mean", "Operation"]
    assert re.split("  +", row.strip())[2:4] == ["1000", "2.30 ms"]
