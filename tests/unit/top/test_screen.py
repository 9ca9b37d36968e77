"""The screen of `ebpfprof top`: numbers, layout in any size, harmless text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ebpfprof.kernel.losses import Loss
from ebpfprof.top.rows import Moment
from ebpfprof.top.screen import lines, report
from ebpfprof.top.state import TopView
from tests.unit.top.moments import LOCK, RECEIVE, SHOP, S, calling, moment, press, view, wait


def screen(top: TopView, width: int = 100, height: int = 30, *, ascii_only: bool = False) -> str:
    return "\n".join(
        line.plain.rstrip() for line in lines(top, width, height, ascii_only=ascii_only)
    )


def test_the_table_has_rates_shares_means_and_sums() -> None:
    before = (wait(60, S, *SHOP[0].locations), *SHOP[1:])
    text = screen(view(moment(before=before)))
    assert "1,000" not in text
    # 40 waits of 2 s altogether in the two seconds since.
    assert re.search(r"> +1\.00 s 100\.0% +20\.0 +50\.0 ms +3\.00 s Mutex\.Lock", text)
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
    assert re.search(r"> +1\.50 s +\N{PLUS-MINUS SIGN}7% +", text)
    assert re.search(r" 500 ms +\N{PLUS-MINUS SIGN}31% +", text)
    exact = next(line for line in text.splitlines() if "InvoicePool" in line)
    assert exact.count("%") == 1
    assert all(len(line) <= width for line in text.splitlines())
    sums = [wait(3, 1_234_567_890, LOCK, calling(1, "main.get"))]
    sums[0] = replace(sums[0], variance=(0.31 * 1_234_567_890) ** 2)
    line = next(e for e in screen(view(moment(sums)), width, 24).splitlines() if e[:1] == ">")
    assert re.search(r"> +620 ms .* 410 ms ", line)  # the mean has as many digits
    assert ("1.2 s" in line) == (width == 100)


def test_exact_numbers_have_no_column_of_errors() -> None:
    assert "Error" not in screen(view())


@pytest.mark.parametrize(
    ("error", "shown"), [(0.0002, "<0.1%"), (0.0123, "+-1.2%"), (1.5, "+-150%"), (40, ">999%")]
)
def test_errors_of_any_size_fit(error: float, shown: str) -> None:
    text = screen(view(estimated(error)), 79, 24, ascii_only=True)
    line = next(line for line in text.splitlines() if line.startswith(">"))
    assert f" {shown} " in line
    assert "PriceCache" in line
    assert line.isascii()


def test_the_stacks_of_a_row_have_errors() -> None:
    top = view(estimated(0.25))
    press(top, "enter")
    assert "1.5 s/s \N{PLUS-MINUS SIGN}25% (" in screen(top)
    assert "since the start: 3.0 s, 100 times" in screen(top)


def test_the_header_shows_target_rates_and_hidden_waits() -> None:
    text = screen(view())
    first, second, third, *_ = text.splitlines()
    assert first == "ebpfprof top  block  shop 1234 go1.27.3  for 3.00 s"
    assert second.startswith("555 waits/s  delay 2.25 s/s  last 2.00 s  ebpfprof itself 2.1% CPU")
    assert second.endswith("nothing lost")
    assert third.startswith("idle, hidden (i shows it): 1.00 s/s, 1.5 waits/s (")
    assert "main.worker" not in text


def test_the_header_shows_lost_and_recorded_shares() -> None:
    at = replace(moment(), lost_share=0.0123)
    assert "  target loses ~1.2%  nothing lost" in screen(view(at))
    at = replace(at, recorded_share=0.034)
    assert "  target loses ~1.2%  recorded 3.4%, scaled" in screen(view(at), width=140)
    at = replace(at, lost_share=0.115, targets=[*at.targets, *at.targets])
    assert "  targets lose ~12%  recorded 3.4%, scaled" in screen(view(at), width=140)


def test_an_unknown_cost_is_not_shown() -> None:
    assert "lose" not in screen(view(replace(moment(), lost_share=0.0)))
    assert "target loses ~less than 0.01%" not in screen(view(replace(moment(), lost_share=1e-6)))
    assert "target loses less than 0.01%" in screen(view(replace(moment(), lost_share=1e-6)))


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


def test_many_processes_leave_room_for_duration_and_pause() -> None:
    top = view(moment(pids=range(1000, 1100)))
    press(top, "p")
    title = "ebpfprof top  block  PAUSED  100 processes"
    for width, named in ((59, ""), (79, ": shop 1000, ..."), (91, ": shop 1000, shop 1001, ...")):
        first = screen(top, width).splitlines()[0]
        assert first == f"{title}{named}  for 3.00 s"
    text = report(top, None, 20, ascii_only=True)[0].plain
    assert "shop 1099 go1.27.3  for 3.00 s" in text


def test_in_a_narrow_window_names_come_before_processes() -> None:
    text = screen(view(moment(pids=(1234, 77))), 20, 5)
    assert re.search(r"^>.* .*Get$", text, re.MULTILINE)
    assert "1234" not in text
    assert "PID" in screen(view(moment(pids=(1234, 77))), 40, 12)


def test_the_screen_shows_a_pause_a_filter_and_an_error() -> None:
    top = view()
    press(top, "p", "/", *"Get(")
    text = screen(top)
    assert "PAUSED" in text.splitlines()[0]
    assert text.splitlines()[-1].startswith("/Get(_  This is no regular expression")
    press(top, "backspace", "enter")
    assert "1 of 3 rows match Get" in screen(top).splitlines()


def test_an_empty_report_has_headings() -> None:
    text = "\n".join(line.plain for line in report(view(moment(())), None, 20, ascii_only=True))
    assert re.search(r"^ +Delay/s +Share +Count/s +Mean +Total +Called from$", text, re.MULTILINE)


def test_empty_tables_are_explained() -> None:
    assert "No goroutine waited and was woken." in screen(view(moment(())))
    top = view(moment([wait(3, S, RECEIVE, calling(1, "main.worker"))]))
    assert "All waits are idle: i shows them." in screen(top)
    top = view()
    press(top, "/", *"nothing", "enter")
    assert "No row matches." in screen(top)


def test_the_stacks_of_a_row_have_frames_labels_and_counts() -> None:
    top = view()
    press(top, "j", "enter")
    text = screen(top)
    assert "500 ms/s (100.0%)  3.5/s  since the start: 1.00 s, 7 times" in text
    assert "user=anna  bytes=512bytes" in text
    assert "    sync.(*Mutex).Lock  /go/sync/mutex.go:46" in text.splitlines()
    assert "    main.refill (inlined)  /src/shop.go:166" in text.splitlines()
    assert "    main.(*Stock).Reserve  /src/shop.go:166" in text.splitlines()


def test_stacks_of_an_idle_row_have_the_reason() -> None:
    top = view(hide_idle=False)
    press(top, *"j", "enter")
    text = screen(top)
    assert "main.worker" in text
    assert re.search(r"^idle, .+: .+", text, re.MULTILINE)


def test_stacks_scroll_no_further_than_their_end() -> None:
    deep = [calling(i, f"main.f{i}") for i in range(100)]
    top = view(moment([wait(1, S, LOCK, *deep)]))
    press(top, "enter", "end")
    text = screen(top, height=20)
    assert "main.f99 " in text.splitlines()[-2]
    assert len(text.splitlines()) == 20
    press(top, "k")
    assert "main.f98 " in screen(top, height=20).splitlines()[-2]


def test_the_chosen_row_is_always_visible() -> None:
    many = [wait(1, 1000 - i, LOCK, calling(i, f"main.f{i}")) for i in range(100)]
    top = view(moment(many))
    press(top, *["j"] * 60)
    marked = [line for line in screen(top).splitlines() if line.startswith(">")]
    assert len(marked) == 1
    assert "main.f60 " in marked[0]


def test_help_names_every_key() -> None:
    top = view()
    press(top, "h")
    text = screen(top, height=50)
    for key in "dcmnr/ipbuxlwq":
        assert re.search(rf"(^|  ){re.escape(key)}[ ,]", text, re.MULTILINE), key


@pytest.mark.parametrize(
    "hostile", ["\x1b]0;owned\x07", "a\nb\rc", "\u202egnp", "[bold]x[/]", "\x9b2J"]
)
def test_hostile_names_send_no_escape_sequence_to_the_terminal(hostile: str) -> None:
    label_and_all = [wait(1, S, LOCK, calling(1, f"main.{hostile}"))]
    top = view(moment(label_and_all, name=hostile, ending=hostile, notes=[hostile]))
    for keys in ((), ("enter",), ("escape", "/", *"[[", hostile[0])):
        press(top, *keys)
        for line in lines(top, 200, 30):
            assert line.plain.isprintable(), line.plain


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


@given(
    st.integers(1, 250),
    st.integers(1, 60),
    st.lists(st.sampled_from([*"jkdcmnripbuxhgG/", "enter", "escape", "pagedown"]), max_size=12),
)
def test_the_screen_fits_into_any_window(width: int, height: int, keys: list[str]) -> None:
    top = view(WIDE)
    press(top, *keys)
    drawn = lines(top, width, height)
    assert len(drawn) == height
    assert max(cell_len(line.plain) for line in drawn) <= width


BUSY = replace(
    moment(
        [
            wait(10**7, 600 * S, LOCK, calling(79, "main.(*PriceCache).Get")),
            wait(10**6, 900 * S, RECEIVE, calling(150, "main.worker")),
        ],
        notes=["Names of the kernel's functions are hidden here: sysctl kernel.kptr_restrict=0."],
        ending="process 1234 (shop) has ended: exit code 1",
    ),
    lost_share=0.115,
    recorded_share=0.0034,
    own_cpu=0.125,
)
LOST = [Loss("stacks_full", "stacks that had no room", 12), Loss("totals_full", "sums", 3)]


def header_and_keys(at: Moment, width: int, *keys: str) -> list[str]:
    """The lines above the table, and the last one."""
    top = view(at)
    press(top, *keys)
    shown = screen(top, width, 60).splitlines()
    headings = next(number for number, line in enumerate(shown) if "Delay/s" in line)
    return [*shown[:headings], shown[-1]]


@pytest.mark.parametrize("losses", [[], LOST])
@pytest.mark.parametrize("width", [20, 30, 39, 59, 79, 99, 119, 300])
def test_no_word_is_cut_above_and_below_the_table(width: int, losses: list[Loss]) -> None:
    at = replace(BUSY, losses=losses)
    for keys in ((), ("p",), ("/", *"worker|Get", "enter"), ("x",), ("l",)):
        whole = " ".join(header_and_keys(at, 1000, *keys))
        short = "Lost: 12 stacks_full, 3 totals_full 15 idle idle, hidden (i): 1234"
        known = set(f"{whole} {short}".split())
        for line in header_and_keys(at, width, *keys):
            assert cell_len(line) <= width
            words = line.removesuffix("...").replace("):", "): ").split()
            assert words, line
            left = {word for word in words if word not in known}
            assert not left, (line, left)


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (19, "delay 300 s/s"),
        (39, "5,500,000 waits/s  delay 300 s/s"),
        (59, "5,500,000 waits/s  delay 300 s/s  recorded 0.34%, scaled"),
        (79, "5,500,000 waits/s  delay 300 s/s  target loses ~12%  recorded 0.34%, scaled"),
    ],
)
def test_the_least_important_parts_are_left_out_first(width: int, said: str) -> None:
    assert screen(view(BUSY), width).splitlines()[1] == said


def test_a_long_message_has_several_lines_and_an_end() -> None:
    top = view()
    top.message = "Written: " + ", ".join(f"shop-{n}.block.pb.gz" for n in range(40))
    text = screen(top, 79, 24).splitlines()
    assert text[21].startswith("Written: shop-0.block.pb.gz, "), text
    assert text[23].endswith(".pb.gz...")
    assert len(text) == 24


@pytest.mark.parametrize("width", [30, 40, 60, 79, 99, 139])
def test_names_are_cut_at_the_left_and_columns_give_way(width: int) -> None:
    name = "example.com/some/very/long/path/of/a/module.(*Type).Method"
    text = screen(view(moment([wait(1, S, LOCK, calling(1, name))])), width, 24)
    (found,) = [line for line in text.splitlines() if line.startswith(">")]
    assert ".Method" in found
    assert "500 ms" in found
    assert ("shop.go:1" in found) == (width > 80)
    assert ("3.00 s" in found or "1.00 s" in found) == (width > 70)


def test_a_low_window_has_rows() -> None:
    for height in (5, 6, 7):
        text = screen(view(WIDE), 80, height)
        assert text.count("Mutex.Lock") >= 2, height


def test_a_report_without_a_terminal_is_not_cut() -> None:
    text = "\n".join(line.plain for line in report(view(WIDE), None, 20, ascii_only=True))
    assert "x" * 500 in text
    assert not re.search(r"^>", text, re.MULTILINE)
    assert "q quit" not in text
    (headings,) = [at for at, line in enumerate(text.splitlines()) if "Delay/s" in line]
    assert len(report(view(WIDE), None, 5, ascii_only=True)) == headings + 1 + 5
