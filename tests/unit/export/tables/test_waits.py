"""The table for people: what is summed, what it says, and that no target reaches the terminal."""

import random
import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ebpfprof.console.text import duration, printable
from ebpfprof.export.tables.waits import Row, render, top_rows
from ebpfprof.profile.model import Frame, Location, Mapping, Profile, Sample, wait_profile

X = "golang.org/x"
MAIN = Mapping(0x400000, 0x500000, 0, "/srv/api", "")


def stack(*functions: str) -> tuple[Location, ...]:
    """One location a function, leaf first, at line 10, 20, ... of its file."""
    return tuple(
        Location(0x400000 + n, MAIN, (Frame(function, f"/src/{n}.go", 10 * n),))
        for n, function in enumerate(functions, 1)
    )


def profile_of(*samples: tuple[tuple[Location, ...], int, int]) -> Profile:
    return wait_profile(
        "block",
        [Sample(locations, (count, ns)) for locations, count, ns in samples],
        [MAIN],
        time_ns=0,
        duration_ns=0,
    )


def row_of(*functions: str) -> Row:
    (row,) = top_rows(profile_of((stack(*functions), 1, 1)), 10)
    return row


def test_stacks_with_one_operation_on_one_line_are_one_row() -> None:
    store = ("runtime.chanrecv1", "main.store")
    rows = top_rows(
        profile_of(
            ((*stack(*store, "main.a"),), 2, 300),
            ((*stack(*store, "main.b"),), 3, 100),
            ((*stack("runtime.chansend1", "main.store"),), 5, 600),
        ),
        10,
    )
    assert rows == [
        Row("chan send", "main.store", "/src/2.go", 20, 5, 600, 0.6),
        Row("chan receive", "main.store", "/src/2.go", 20, 5, 400, 0.4),
    ]
    assert [row.mean_ns for row in rows] == [120, 80]


def test_the_rows_are_the_largest_and_the_share_is_of_all() -> None:
    samples = [(stack("runtime.selectgo", f"main.f{n}"), 1, n) for n in range(1, 101)]
    random.Random(1).shuffle(samples)
    rows = top_rows(profile_of(*samples), 3)
    assert [row.function for row in rows] == ["main.f100", "main.f99", "main.f98"]
    assert rows[0].share == 100 / 5050


def test_equal_rows_come_in_a_definite_order() -> None:
    samples = [(stack("runtime.selectgo", f"main.{name}"), 1, 1) for name in "bdac"]
    assert [row.function[-1] for row in top_rows(profile_of(*samples), 9)] == list("abcd")


def test_a_profile_without_delay_has_no_shares() -> None:
    (row,) = top_rows(profile_of((stack("main.f"), 0, 0)), 10)
    assert (row.share, row.mean_ns) == (0, 0)


# From the stacks that Go's own profiler records, leaf first.
@pytest.mark.parametrize(
    ("functions", "operation"),
    [
        (["runtime.chansend1", "main.f"], "chan send"),
        (["runtime.chanrecv1", "main.f"], "chan receive"),
        (["runtime.chanrecv2", "main.f"], "chan receive"),
        (["runtime.selectgo", "main.f"], "select"),
        (["runtime.selectgo", "reflect.rselect", "reflect.Select", "main.f"], "select"),
        (
            ["reflect.chanrecv", "reflect.Value.recv", "reflect.Value.Recv", "main.f"],
            "chan receive",
        ),
        (["reflect.chansend0", "reflect.chansend", "reflect.Value.send", "main.f"], "chan send"),
        (["reflect.chansend", "reflect.Value.send", "main.f"], "chan send"),
        (["sync.(*Mutex).Lock", "main.f"], "Mutex.Lock"),
        (["sync.(*Mutex).Lock", "sync.(*RWMutex).Lock", "main.f"], "RWMutex.Lock"),
        (["sync.(*RWMutex).Lock", "main.f"], "RWMutex.Lock"),
        (["sync.(*RWMutex).RLock", "main.f"], "RWMutex.RLock"),
        (["sync.(*WaitGroup).Wait", "main.f"], "WaitGroup.Wait"),
        (["sync.(*Cond).Wait", "main.f"], "Cond.Wait"),
        (
            ["sync.(*Mutex).Lock", "sync.(*Once).doSlow", "sync.(*Once).Do", "main.f"],
            "Once.Do",
        ),
        (["internal/sync.(*HashTrieMap[...]).Swap", "sync.(*Map).Store", "main.f"], "Map.Store"),
        (["sync.(*Mutex).Lock", "main.f", "sync.(*Once).Do", "main.g"], "Mutex.Lock"),
        (["sync.OnceFunc.func1", "main.f"], "OnceFunc"),
        (
            ["internal/poll.(*fdMutex).rwlock", "internal/poll.(*FD).readLock", "os.(*File).Read"],
            "fd lock",
        ),
        (["sync.(*Mutex).Unlock", "main.f"], "Mutex.Unlock"),
        # Woken, it waits for the lock: not for the condition any more.
        (["sync.(*Mutex).Lock", "sync.(*Cond).Wait", "main.f"], "Mutex.Lock"),
        (
            ["sync.(*Mutex).Lock", "sync.(*RWMutex).Lock", "sync.(*Cond).Wait", "main.f"],
            "RWMutex.Lock",
        ),
        (["sync.(*RWMutex).RLock", "sync.(*rlocker).Lock", "main.f"], "RWMutex.RLock"),
        (["sync.(*RWMutex).RUnlock", "sync.(*rlocker).Unlock", "main.f"], "RWMutex.RUnlock"),
        (["sync.(*Mutex).Lock", "sync.(*Pool).pinSlow", "sync.(*Pool).Get", "main.f"], "Pool.Get"),
        (["sync.OnceValue[...].func1", "main.f"], "OnceValue"),
        (["sync.(*WaitGroup).Wait", f"{X}/sync/errgroup.(*Group).Wait", "main.f"], "errgroup Wait"),
        (["runtime.chansend1", f"{X}/sync/errgroup.(*Group).Go", "main.f"], "errgroup Go"),
        (
            ["runtime.selectgo", f"{X}/sync/semaphore.(*Weighted).Acquire", "main.f"],
            "semaphore Acquire",
        ),
        (["runtime.selectgo", "net/http.(*persistConn).roundTrip", "main.f"], "HTTP answer"),
        (["sync.(*Mutex).Lock", "net/http.(*persistConn).closed", "main.f"], "Mutex.Lock"),
        (["runtime.selectgo", "main.f", "net/http.(*persistConn).roundTrip"], "select"),
        (["net/http.(*persistConn).roundTrip", "main.f"], "net/http.(*persistConn).roundTrip"),
        (["runtime.newthing", "main.f"], "runtime.newthing"),
        (["example.com/sync.(*Mutex).Lock", "main.f"], "example.com/sync.(*Mutex).Lock"),
        (["main.f"], "main.f"),
        ([], "[unknown]"),
    ],
)
def test_operations_are_named_as_a_programmer_would(functions: list[str], operation: str) -> None:
    assert row_of(*functions).operation == operation


@pytest.mark.parametrize(
    ("functions", "caller"),
    [
        (["runtime.selectgo", "reflect.rselect", "reflect.Select", "main.f", "main.g"], "main.f"),
        (["sync.(*Mutex).Lock", "internal/poll.(*FD).Read", "os.(*File).Read"], "os.(*File).Read"),
        (["sync.(*Mutex).Lock", "internal/sync.x", "internal/runtime/maps.y", "a.b"], "a.b"),
        (["sync.(*Mutex).Lock", "sync/atomic.x", "runtime/trace.y", "net/http.z"], "net/http.z"),
        (["runtime.chanrecv1", "github.com/a/internal/b.F", "main.f"], "github.com/a/internal/b.F"),
        (["runtime.chanrecv1", "sync.example.com/x.F", "main.f"], "sync.example.com/x.F"),
        (["runtime.chanrecv1", "synchro.F", "main.f"], "synchro.F"),
        # What the operation is called says it all of the package's own frames.
        (
            [
                "runtime.selectgo",
                "net/http.(*persistConn).roundTrip",
                "net/http.(*Transport).RoundTrip",
                "net/http.(*Client).Get",
                "main.f",
                "net/http.HandlerFunc.ServeHTTP",
            ],
            "main.f",
        ),
        (
            ["runtime.selectgo", "net/http.(*Transport).getConn", "net/http/httputil.x", "main.f"],
            "net/http/httputil.x",
        ),
        (["sync.(*WaitGroup).Wait", f"{X}/sync/errgroup.(*Group).Wait", "main.f"], "main.f"),
        (["runtime.selectgo", "io.(*pipe).read", "io.(*PipeReader).Read", "bufio.f"], "bufio.f"),
        (["runtime.selectgo", "io.(*pipe).read", "iox.Read"], "iox.Read"),
        (["runtime.selectgo", "io.(*pipe).read", "io.(*PipeReader).Read"], "io.(*pipe).read"),
        (["sync.(*Pool[go.shape.int]).x", "main.G[go.shape.int]"], "main.G[go.shape.int]"),
        # The slash is the type parameter's.
        (["internal/sync.(*HashTrieMap[a.com/b.T]).x", "main.f"], "main.f"),
        (["sync.(*Map[example.com/x.T]).Load", "main.f"], "main.f"),
        # All of it Go's own: the outermost says most.
        (["runtime.chanrecv1", "runtime.bgsweep", "runtime.goexit"], "runtime.goexit"),
        ([], "[unknown]"),
    ],
)
def test_the_caller_is_the_first_frame_outside_of_gos_inside(
    functions: list[str], caller: str
) -> None:
    assert row_of(*functions).function == caller


def test_inlined_frames_count_as_frames() -> None:
    frames = (Frame("sync.(*Mutex).Lock", "/m.go", 1), Frame("main.f", "/main.go", 7))
    (row,) = top_rows(profile_of(((Location(1, None, frames),), 1, 1)), 10)
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


def test_the_environment_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = render(SHOP, width=80, color=True)
    for name, value in {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "20", "LINES": "5"}.items():
        monkeypatch.setenv(name, value)
    assert render(SHOP, width=80, color=True) == expected


@pytest.mark.parametrize("kind", ["block", "mutex"])
def test_an_empty_profile_says_so(kind: str) -> None:
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
def test_nothing_a_target_says_acts_on_the_terminal(text: str, color: bool) -> None:
    location = Location(1, None, (Frame(f"main.{text}", f"/{text}", 1),))
    shown = render(profile_of(((location,), 1, 1)), width=None, color=color)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", shown) if color else shown
    assert all(c == "\n" or c.isprintable() for c in shown)
    # Visible, not dropped: in the operation, the function and the file.
    assert shown.count(text.encode("unicode_escape").decode("ascii").replace("\\\\", "\\")) == 3
    assert len(shown.splitlines()) == 3


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_printable_text_is_printable_and_ascii_if_asked(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text, ascii_only=True).isascii()
    assert all(unicodedata.category(c)[0] != "C" for c in printable(text))


def test_printable_leaves_names_alone() -> None:
    name = "main.größe.(*T[go.shape.int]).func1·f 世界"
    assert printable(name) == name
    assert printable(name, ascii_only=True) == (
        "main.gr\\xf6\\xdfe.(*T[go.shape.int]).func1\\xb7f \\u4e16\\u754c"
    )


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


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (1, "1 ns"),
        (999, "999 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 us"),
        (1_000, "1.00 us"),
        (1_234, "1.23 us"),
        (12_345, "12.3 us"),
        (123_456, "123 us"),
        (999_949, "1.00 ms"),
        (9_994_999, "9.99 ms"),
        (9_995_001, "10.0 ms"),
        (99_949_999, "99.9 ms"),
        (99_950_001, "100 ms"),
        (1_000_000_000, "1.00 s"),
        (59_900_000_000, "59.9 s"),
        (60_000_000_000, "1.00 min"),
        (3_600_000_000_000, "1.00 h"),
        (360_000_000_000_000, "100 h"),
        (-1_500_000, "-1.50 ms"),
    ],
)
def test_durations_have_three_digits_and_a_unit(ns: float, text: str) -> None:
    assert duration(ns) == text
