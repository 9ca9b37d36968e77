"""A table of `ebpfprof top` and what stands above it: numbers, any width, harmless text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ebpfprof.profile.losses import Loss
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.top.json_form import document
from ebpfprof.top.report import plain, rendered, report
from ebpfprof.top.rows import Moment
from ebpfprof.top.state import TopView
from tests.unit.top.moments import LOCK, RECEIVE, SHOP, S, calling, moment, view, wait


def screen(
    top: TopView, width: int | None = 99, limit: int = 30, *, ascii_only: bool = False
) -> str:
    """The table as text."""
    return plain(report(top, width, limit, ascii_only=ascii_only)).rstrip()


def test_the_table_has_rates_shares_means_and_sums() -> None:
    before = (wait(60, S, *SHOP[0].locations), *SHOP[1:])
    text = screen(view(moment(before=before)))
    assert "1,000" not in text
    # 40 waits of 2 s altogether in the two seconds since.
    assert re.search(r"(?m)^ +1\.00 s 100\.0% +20\.0 +50\.0 ms +3\.00 s Mutex\.Lock", text)
    assert re.search(r"main\.\(\*PriceCache\)\.Get +shop\.go:79", text)


def estimated(*relative: float) -> Moment:
    """The moment with these standard errors, first of the worst row."""
    errors = [*relative, *[0.0] * (len(SHOP) - len(relative))]
    return moment(
        [
            replace(sample, variance=(error * sample.values[-1]) ** 2)
            for sample, error in zip(SHOP, errors, strict=True)
        ]
    )


@pytest.mark.parametrize("width", [79, 100])
def test_estimates_have_their_errors_and_no_more_digits_than_are_known(width: int) -> None:
    text = screen(view(estimated(0.07, 0.31)), width, 24)
    assert re.search(r"Delay/s +Error +Share", text)
    assert re.search(r"(?m)^ +1\.50 s +\N{PLUS-MINUS SIGN}7% +", text)
    assert re.search(r" 500 ms +\N{PLUS-MINUS SIGN}31% +", text)
    exact = next(line for line in text.splitlines() if "InvoicePool" in line)
    assert exact.count("%") == 1
    assert all(len(line) <= width for line in text.splitlines())
    sums = [wait(3, 1_234_567_890, LOCK, calling(1, "main.get"))]
    sums[0] = replace(sums[0], variance=(0.31 * 1_234_567_890) ** 2)
    line = next(e for e in screen(view(moment(sums)), width, 24).splitlines() if " ms " in e)
    assert re.search(r"^ +620 ms .* 410 ms ", line)  # the mean has as many digits
    assert ("1.2 s" in line) == (width == 100)


@pytest.mark.parametrize(
    ("error", "count"), [(0.0, "61.5"), (0.04, "61.5"), (0.2, "62"), (0.51, "-")]
)
def test_counts_have_as_many_digits_as_are_known(error: float, count: str) -> None:
    """Two seconds."""
    waits = wait(123, 4 * S, LOCK, calling(1, "main.get"))
    waits = replace(waits, count_variance=(error * 123) ** 2)
    line = next(e for e in screen(view(moment([waits]))).splitlines() if "main.get" in e)
    assert re.search(rf"100\.0% +{count} ", line)


def test_exact_numbers_have_no_column_of_errors() -> None:
    assert "Error" not in screen(view())


@pytest.mark.parametrize(
    ("error", "shown"), [(0.0002, "<0.1%"), (0.0123, "+-1.2%"), (1.5, "+-150%"), (40, ">999%")]
)
def test_errors_of_any_size_fit(error: float, shown: str) -> None:
    text = screen(view(estimated(error)), 79, 24, ascii_only=True)
    line = next(line for line in text.splitlines() if "PriceCache" in line)
    assert f" {shown} " in line
    assert "PriceCache" in line
    assert line.isascii()


def test_the_header_shows_lost_and_recorded_shares() -> None:
    at = replace(moment(), overhead_share=0.0123)
    assert "  overhead ~1.2%  nothing lost" in screen(view(at), width=140)
    at = replace(at, recorded_share=0.034)
    assert "  overhead ~1.2%  recorded 3.4%, scaled" in screen(view(at), width=140)
    at = replace(at, overhead_share=0.115, targets=[*at.targets, *at.targets])
    assert "  overhead ~12%  recorded 3.4%, scaled" in screen(view(at), width=140)


def test_an_unknown_cost_is_not_shown() -> None:
    assert "overhead" not in screen(view(replace(moment(), overhead_share=0.0)))
    assert "overhead ~less than 0.01%" not in screen(view(replace(moment(), overhead_share=1e-6)))
    assert "overhead less than 0.01%" in screen(view(replace(moment(), overhead_share=1e-6)))


def test_losses_endings_and_notes_are_shown() -> None:
    loss = Loss("stacks_full", "stacks that had no room", 12)
    text = screen(view(moment(losses=[loss], ending="process 1234 ended", notes=["names miss"])))
    for said in (
        "Lost: 12 stacks that had no room (stacks_full)",
        "process 1234 ended",
        "names miss",
    ):
        assert said in text.splitlines(), said
    assert "nothing lost" not in text


def test_several_processes_have_a_column() -> None:
    text = screen(view(moment(pids=(1234, 77))))
    assert "2 processes: shop 1234 go1.27.3, shop 77 go1.27.3" in text
    assert re.search(r" 1234 Mutex\.Lock +main", text)
    assert re.search(r" {3}77 Mutex\.Lock +main", text)


def test_in_a_narrow_window_names_come_before_processes() -> None:
    text = screen(view(moment(pids=(1234, 77))), 20, 5)
    assert re.search(r"^ .* .*Get$", text, re.MULTILINE)
    assert "1234" not in text
    assert "PID" in screen(view(moment(pids=(1234, 77))), 40, 12)


def test_an_empty_report_has_headings() -> None:
    text = "\n".join(line.plain for line in report(view(moment(())), None, 20, ascii_only=True))
    assert re.search(r"^ +Delay/s +Share +Count/s +Mean +Total +Called from$", text, re.MULTILINE)


def test_empty_tables_are_explained() -> None:
    assert "No goroutine waited and was woken." in screen(view(moment(())))
    top = view(moment([wait(3, S, RECEIVE, calling(1, "main.worker"))]))
    assert "All waits are idle: i shows them." in screen(top)
    top = view()
    assert top.search("nothing") == ""
    assert "No row matches." in screen(top)


def test_the_screen_can_be_ascii_only() -> None:
    top = view(moment([wait(1, S, LOCK, calling(1, "main.日本"))]))
    assert "main.日本" in screen(top)
    assert "main.\\u65e5\\u672c" in screen(top, ascii_only=True)


WIDE = moment(
    [
        wait(1, S, LOCK, calling(1, "example.com/ünï/日本語パッケージ.(*とても長い名前).メソッド")),
        wait(9, S // 3, LOCK, calling(2, "x" * 3000)),
        *SHOP,
    ],
    pids=(1, 4194304),
    losses=[Loss("a", "things", 1)],
    notes=["n" * 500],
)


BUSY = replace(
    moment(
        [
            wait(10**7, 600 * S, LOCK, calling(79, "main.(*PriceCache).Get")),
            wait(10**6, 900 * S, RECEIVE, calling(150, "main.worker")),
        ],
        notes=["Names of the kernel's functions are hidden here: sysctl kernel.kptr_restrict=0."],
        ending="process 1234 (shop) has ended: exit code 1",
    ),
    overhead_share=0.115,
    recorded_share=0.0034,
    own_cpu=0.125,
)
LOST = [Loss("stacks_full", "stacks that had no room", 12), Loss("totals_full", "sums", 3)]


@pytest.mark.parametrize("losses", [[], LOST])
@pytest.mark.parametrize("width", [20, 30, 39, 59, 79, 99, 199])
def test_caveats_are_whole_at_any_width(width: int, losses: list[Loss]) -> None:
    top = view(replace(BUSY, losses=losses))
    top.paused = True
    text = screen(top, width)
    lines = text.splitlines()
    assert max(cell_len(line) for line in lines) <= width
    words = " ".join(" ".join(lines).split())
    said = ["PAUSED", "delay 300 s/s", "overhead ~12%", "recorded 0.34%, scaled"]
    said += ["ebpfprof itself 12% CPU", "for 3.00 s", "process 1234 (shop) has ended: exit code 1"]
    if losses:
        said += ["12 stacks that had no room", "3 sums"] if width > 39 else ["Lost: 12"]
    else:
        said.append("nothing lost")
    assert [each for each in said if each not in words] == []


@given(
    st.integers(0, 10**12),
    st.floats(-2, 2),
    st.floats(-1, 1),
    st.floats(0, 1),
    st.integers(20, 200),
)
def test_no_header_shows_no_time_or_negative_values(
    uptime_ns: int, own_cpu: float, overhead_share: float, recorded_share: float, width: int
) -> None:
    at = replace(
        moment(),
        uptime_ns=uptime_ns,
        own_cpu=own_cpu,
        overhead_share=overhead_share,
        recorded_share=recorded_share,
    )
    for each in (at, replace(at, readings={}), replace(at, readings={}, uptime_ns=0)):
        text = screen(view(each), width)
        assert not re.search(r"(for|last) 0 ns|\s-[\d.]", text), text


def test_before_the_first_sample_it_says_what_it_does() -> None:
    text = screen(view(replace(moment(), readings={}, uptime_ns=0)))
    assert "ebpfprof top  block  shop 1234 go1.27.3" in text
    assert "Recording. The first table comes in a moment." in text
    assert "waits/s" not in text


@pytest.mark.parametrize(
    "hostile", ["\x1b]0;owned\x07", "a\nb\rc", "\u202egnp", "[bold]x[/]", "\x9b2J"]
)
def test_hostile_names_send_no_escape_sequence_to_the_terminal(hostile: str) -> None:
    waits = [wait(1, S, LOCK, calling(1, f"main.{hostile}"))]
    top = view(moment(waits, name=hostile, ending=hostile, notes=[hostile]))
    for line in report(top, 199, 30, ascii_only=False):
        assert line.plain.isprintable(), line.plain


def test_many_processes_are_counted() -> None:
    at = moment(pids=range(1000, 1100))
    assert screen(view(at), 79).startswith(
        "ebpfprof top  block  100 processes: shop 1000, shop 1001, ...  for 3.00 s\n"
    )
    assert "shop 1099 go1.27.3  for 3.00 s" in screen(view(at), None)


def test_styles_are_escape_sequences_without_colours_if_asked() -> None:
    lines = report(view(), 79, 3, ascii_only=False)
    assert re.search(r"\x1b\[[\d;]*3\dm", rendered(lines, 80, color=True))
    without = rendered(lines, 80, color=False)
    assert "\x1b[1m" in without
    assert not re.search(r"\x1b\[[\d;]*3\dm", without)
    assert "\x1b" not in plain(lines)


@pytest.mark.parametrize("width", [30, 40, 60, 79, 99, 139])
def test_names_are_cut_at_the_left_and_columns_give_way(width: int) -> None:
    name = "example.com/some/very/long/path/of/a/module.(*Type).Method"
    text = screen(view(moment([wait(1, S, LOCK, calling(1, name))])), width, 24)
    (found,) = [line for line in text.splitlines() if "Method" in line]
    assert ".Method" in found
    assert "500 ms" in found
    assert ("shop.go:1" in found) == (width > 80)
    assert ("3.00 s" in found or "1.00 s" in found) == (width > 70)


def test_a_report_without_a_terminal_is_not_cut() -> None:
    text = "\n".join(line.plain for line in report(view(WIDE), None, 20, ascii_only=True))
    assert "x" * 500 in text
    (headings,) = [at for at, line in enumerate(text.splitlines()) if "Delay/s" in line]
    assert len(report(view(WIDE), None, 5, ascii_only=True)) == headings + 1 + 5


def test_waits_in_progress_have_neither_a_count_nor_a_mean() -> None:
    """Their time is known from samples; none of them has ended."""
    get = calling(79, "main.(*PriceCache).Get")
    at = moment([wait(0, 46 * S, LOCK, get), wait(0, S, RECEIVE, calling(150, "main.worker"))])
    text = screen(view(at, hide_idle=False))
    assert "waits in progress  delay 23.5 s/s" in text
    assert "waits/s" not in text.partition("\n\n")[0]
    assert re.search(r"(?m)^ +23\.0 s +97\.9% +- +- +46\.0 s Mutex\.Lock", text)
    (row, *_) = document(view(at, hide_idle=False), 0.0)["tables"][0]["rows"]
    assert row["count_per_s"] is None


def test_idle_waits_in_progress_are_reported_as_hidden() -> None:
    worker = calling(150, "main.worker")
    text = screen(view(moment([wait(0, 2 * S, RECEIVE, worker), SHOP[0]])))
    assert "idle, hidden (i shows it): 1.00 s/s (" in text


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (None, ["Mean", "Total", "p50", "p99", "Max"]),
        (99, ["Mean", "p99"]),
        (80, ["Mean", "p99"]),
    ],
)
def test_lengths_of_waits_have_columns_as_far_as_there_is_room(
    width: int | None, columns: list[str]
) -> None:
    lengths = WaitHistogram.of([1_000_000] * 99 + [900_000_000])
    samples = [replace(sample, lengths=lengths) for sample in SHOP]
    text = screen(view(moment(samples)), width)
    (headings,) = [line for line in text.splitlines() if "Delay/s" in line]
    shown = headings.split("Operation")[0].split()
    assert shown[shown.index("Mean") :] == columns
    assert re.search(r"shop\.go:79", text) or width == 80
