"""`ebpfprof top` in a real terminal, on a real program."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import jsonschema
import psutil
import pytest

from ebpfprof.export import pprof
from tests.builds import NEWEST, in_full
from tests.kernel.kernel_state import has_probes
from tests.kernel.parked_program import running
from tests.kernel.programs import program
from tests.kernel.screens import Screen, screen
from tests.kernel.tampered import command
from tests.targets_run import Target

# Rates of every moment are there then, however busy the machine is.
TOP = f"{shlex.quote(sys.executable)} -m ebpfprof top --max-overhead 0"
ROOT = Path(__file__).parents[2]
# The shop's flaw: all requests wait for the cache's lock.
GET = r"Mutex\.Lock +main\.\(\*PriceCache\)\.Get"
# It may wait elsewhere, too, where the printer is slow.
WAITS_FOR_WORK = r"chan receive +main\.\(\*InvoicePool\)\.work"
DISCOUNT = r"RWMutex\.RLock +main\.\(\*Config\)\.Discount"
HEADINGS = r"^ +Delay/s +Share +Count/s +Mean +(Total +)?p99 +Operation +Called from$"
KEYS = r" Stacks q Quit / Search "
SUMS = (
    r"^[\d,.]+ waits/s\s+delay [\d.]+ m?s/s\s+last [\d.]+ m?s"
    r"\s+ebpfprof itself [\d.]+% CPU(\s+overhead [a-z\d.~ ]+%)?\s+nothing lost$"
)
DEADLINE_S = 60
NUMBERS = count(1)


@pytest.fixture(scope="module")
def shop() -> Iterator[Target]:
    with Target.start(program("demo")) as target:
        yield target


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Screen]:
    with screen(tmp_path, PYTHONPATH=str(ROOT)) as shown:
        yield shown


def begin(terminal: Screen, *targets: Target, options: str = "--profile block") -> str:
    """Start it, and wait until there is something to see."""
    pids = " ".join(f"--pid {target.pid}" for target in targets)
    terminal.type(f"{TOP} {pids} --interval 0.5 {options}; echo status $?")
    return terminal.wait_for(GET, KEYS)


def end(terminal: Screen, target: Target) -> str:
    """Wait for its good end."""
    text = terminal.wait_for(r"^status 0$")
    assert not has_probes(target.pid)
    return text


def modes(terminal: Screen) -> str:
    """How programs find the terminal."""
    number = next(NUMBERS)
    terminal.type(f"clear; printf 'modes-%d ' {number}; stty -g | md5sum")
    found = re.search(rf"^modes-{number} (\w+)", terminal.wait_for(rf"^modes-{number} \w+"), re.M)
    assert found
    return terminal.modes + found[1]


def test_top_shows_waits_and_restores_the_terminal(terminal: Screen, shop: Target) -> None:
    before = modes(terminal)
    begin(terminal, shop)
    terminal.wait_for(
        r"\A b block$",
        rf"^ebpfprof top  block  demo {shop.pid} go1\.27\.\d+  for [\d.]+ m?s$",
        SUMS,
        r"overhead",
        r"^idle, hidden \(i shows it\): ",
        HEADINGS,
        rf"^.* {GET}( +shop\.go:\d+)?$",  # without its line, where lengths are known
        rf"{KEYS}.*\Z",
        without=WAITS_FOR_WORK,
    )
    assert has_probes(shop.pid)
    assert terminal.modes == "second 1 cursor 0"
    terminal.press("i")
    terminal.wait_for(WAITS_FOR_WORK, without="^idle, hidden")

    terminal.press("p")
    first = terminal.wait_for("PAUSED").splitlines()[1]
    terminal.press("i")
    text = terminal.wait_for("^idle, hidden", without=WAITS_FOR_WORK)
    assert text.splitlines()[1] == first
    terminal.press("p")
    terminal.wait_for("^ebpfprof top", without=re.escape(first.replace("  PAUSED", "")))

    terminal.press("q")
    end(terminal, shop)
    terminal.wait_for(GET, without=KEYS)  # the last table stays
    assert "--profile block; echo" in terminal.history, "what was there before is there again"
    assert modes(terminal) == before


@pytest.mark.full
@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        *in_full((80, 24)),
        *in_full((200, 50)),
        (40, 24),
    ],
)
def test_cost_and_losses_are_readable_in_windows_of_any_width(
    tmp_path: Path, shop: Target, columns: int, rows: int
) -> None:
    with screen(tmp_path, columns, rows, PYTHONPATH=str(ROOT)) as terminal:
        pid = shop.pid
        terminal.type(f"{TOP} --pid {pid} --interval 0.5 --profile block,mutex; echo status $?")
        name = rf"(demo )?{pid}( go1\.27\.\d+)?"  # as much as has room
        title = rf"^ebpfprof top  block  {name}\s+for [\d.]+ m?s$"
        terminal.wait_for(r"\A b block  u mutex$", title, SUMS, "overhead", r"\)\.Get")
        terminal.wait_for(KEYS if columns > 40 else " q Quit ", without=r"for 0 ns|\s-\d")
        terminal.resize(60, 24)
        terminal.wait_for(title, SUMS, GET)
        terminal.press("C-c")
        end(terminal, shop)


@pytest.mark.full
def test_it_says_what_it_does_until_the_first_table(terminal: Screen, shop: Target) -> None:
    """The steps stand in the terminal one after the other; each is there for a moment only."""
    terminal.type(f"script -qec '{TOP} --pid {shop.pid} --duration 1' said; echo status $?")
    terminal.wait_for(r"^status 0$")
    output = (terminal.folder / "said").read_text(errors="replace")
    steps = (
        "compiling the BPF programs",
        "reading the executable",
        f"attaching to process {shop.pid}",
    )
    places = [output.index(f"ebpfprof: {step}") for step in steps]
    assert places == sorted(places)
    assert output.index("\x1b[?1049h") > places[-1]
    assert "Recording. The first table comes in a moment." in output


def test_keys_sort_search_choose_and_show_stacks(terminal: Screen, shop: Target) -> None:
    begin(terminal, shop, options="--profile block,mutex")
    terminal.press("n")
    terminal.wait_for(rf"{DISCOUNT}[\s\S]*{GET}")
    terminal.press("r")
    terminal.wait_for(rf"{GET}[\s\S]*{DISCOUNT}")
    terminal.press("r", "d")

    terminal.type_text("/Discount|(")
    terminal.wait_for(r"^This is no regular expression", r"^Discount\|\($")
    terminal.press("BSpace", "BSpace", "Enter")
    terminal.wait_for(r"^1 of \d+ rows match Discount$", DISCOUNT, without=GET)
    terminal.press("Enter")
    terminal.wait_for(
        r"\ARWMutex\.RLock main\.\(\*Config\)\.Discount shop\.go:\d+$",
        r"^Delay/s in the last [\d.]+ m?s: ",
        r"^[\d.]+ m?s/s \([\d.]+%\)  [\d.,]+/s  since the start: .* times$",
        r"^    sync\.\(\*RWMutex\)\.RLock ",
        r"^    main\.\(\*Config\)\.Discount.* /.*/shop\.go:\d+$",
        r"esc Back",
    )
    terminal.press("Escape")
    terminal.wait_for(KEYS)
    terminal.press("/", "Escape")
    terminal.wait_for(GET, DISCOUNT)

    terminal.press("u")
    terminal.wait_for(r"Mutex\.Unlock +main\.\(\*PriceCache\)\.Get")
    terminal.press("x")
    terminal.wait_for("^The CPU profile is not recorded")
    terminal.press("?")
    terminal.wait_for("^r  reverse the order")
    terminal.press("C-c")
    end(terminal, shop)


@pytest.mark.full
def test_clicks_choose_tables_and_columns(terminal: Screen, shop: Target) -> None:
    """As terminals report them: the button, the column and the line, from 1."""
    begin(terminal, shop, options="--profile block,mutex")
    lines = terminal.text().splitlines()
    terminal.type_text(click(lines[0].index("mutex"), 0))
    terminal.wait_for(r"^ebpfprof top  mutex", r"Mutex\.Unlock +main")
    terminal.press("b")
    terminal.wait_for(rf"{GET}[\s\S]*{DISCOUNT}")
    lines = terminal.text().splitlines()
    (y,) = (at for at, line in enumerate(lines) if "Called from" in line)
    terminal.type_text(click(lines[y].index("Called"), y))
    terminal.wait_for(rf"{DISCOUNT}[\s\S]*{GET}")
    terminal.press("q")
    end(terminal, shop)


def click(x: int, y: int) -> str:
    return f"\x1b[<0;{x + 1};{y + 1}M\x1b[<0;{x + 1};{y + 1}m"


def test_top_shows_locks_and_cpu_time_and_writes_profiles(
    terminal: Screen, shop: Target, tmp_path: Path
) -> None:
    terminal.resize(140, 40)
    terminal.type(f"{TOP} --pid {shop.pid} --interval 0.5 --by-lock; echo status $?")
    terminal.wait_for(
        r"Held Held p99 Type +Lock$", r"^ .* sync\.Mutex +main\.PriceCache\.mu +0x[0-9a-f]+$"
    )
    terminal.press("Enter")
    terminal.wait_for("^released: ", r"^    main\.\(\*PriceCache\)\.Get ")
    terminal.press("Escape")
    terminal.wait_for(KEYS)
    terminal.press("x")
    terminal.wait_for(r"^.\s+[\d.]+% +[\d.]+% .* crypto/.*sha256")

    kinds = ("block", "mutex", "cpu")
    names = [rf"demo-{shop.pid}-\d{{8}}-\d{{6}}\.{kind}\.pb\.gz" for kind in kinds]
    terminal.press("w")
    terminal.wait_for("^Written: " + ", ".join(names))
    written = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for name, function in zip(names, ("PriceCache).Get", "PriceCache).Get", "sha256"), strict=True):
        (data,) = (data for path, data in written.items() if re.fullmatch(name, path.name))
        profile = pprof.decode(data)
        frames = (frame for s in profile.samples for at in s.locations for frame in at.frames)
        assert any(function in frame.function for frame in frames), name
    # What was written before stays, also in the same second.
    terminal.press("w")
    until_s = time.monotonic() + DEADLINE_S
    while len(list(tmp_path.glob("*.cpu*.pb.gz"))) < 2:
        assert time.monotonic() < until_s
        terminal.press("d")
    assert {path: path.read_bytes() for path in written} == written
    terminal.press("q")
    end(terminal, shop)


@pytest.mark.full
def test_top_draws_windows_of_any_size_without_colours(tmp_path: Path, shop: Target) -> None:
    """It can also be suspended, and SIGTERM ends it as q does."""
    plain = {"NO_COLOR": "1", "LC_ALL": "C"}
    with screen(tmp_path, 80, 24, PYTHONPATH=str(ROOT), **plain) as terminal:
        before = modes(terminal)
        begin(terminal, shop)
        assert not re.search(r"\x1b\[(\d+;)*[34][0-7][;m]", terminal.text("-e")), "no colour"
        terminal.resize(60, 8)  # with a scroll bar, if there are more rows than it shows
        row = r"^ .*PriceCache\)\.Get(?: +\S)?$"
        terminal.wait_for(r"\A b block\nebpfprof(.*\n){6}.*q Quit", row)
        terminal.resize(20, 8)
        terminal.wait_for(r"\A(.*\n){7}.* Stacks", r"^ .*\)\.Get(?: +\S)?$")
        terminal.resize(140, 40)
        terminal.wait_for(
            r"\A b block\nebpfprof(.*\n){38}.*q Quit", r"^ .*PriceCache\)\.Get +shop\.go:\d+$"
        )

        terminal.press("C-z")
        terminal.wait_for("^.*Stopped")
        assert modes(terminal) == before
        terminal.type("fg; echo status $?")
        terminal.wait_for(GET, KEYS)
        assert terminal.modes == "second 1 cursor 0"
        terminal.press("h")
        terminal.wait_for("^r  reverse the order")
        (process,) = terminal.programs
        process.send_signal(signal.SIGTERM)
        end(terminal, shop)
        assert modes(terminal) == before


@pytest.mark.full
def test_a_closed_terminal_leaves_no_probe(tmp_path: Path, shop: Target) -> None:
    with screen(tmp_path, PYTHONPATH=str(ROOT)) as terminal:
        begin(terminal, shop)
        (process,) = terminal.programs
    psutil.wait_procs([process], timeout=DEADLINE_S)
    assert not process.is_running()
    assert not has_probes(shop.pid)


@pytest.mark.full
def test_top_continues_when_a_target_ends(terminal: Screen, shop: Target) -> None:
    with Target.start(program("demo")) as brief:
        begin(terminal, brief, shop)
        terminal.wait_for(
            rf" {brief.pid} {GET}", rf" {shop.pid} {GET}", r"^ebpfprof .*\s+2 processes"
        )
        brief.close_input()
        brief.wait()
        terminal.wait_for(rf"^process {brief.pid} .*ended", f" {brief.pid} {GET}")
        terminal.press("w")
        terminal.wait_for(rf"^Written: .*{brief.pid}-[\d-]+\.block.* demo-{shop.pid}-[\d-]+\.block")
        terminal.press("q")
        end(terminal, shop)


@pytest.mark.full
def test_a_signal_while_top_attaches_leaves_no_probe(tmp_path: Path, shop: Target) -> None:
    beginning = subprocess.Popen(
        [*command("stops while attaching", "top"), "--pid", str(shop.pid)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        state = os.waitid(os.P_PID, beginning.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert state is not None
        assert state.si_code == os.CLD_STOPPED
        assert has_probes(shop.pid)
        beginning.terminate()
        beginning.send_signal(signal.SIGCONT)
        output = beginning.communicate(timeout=DEADLINE_S)
    finally:
        beginning.kill()
        beginning.wait()
    assert (beginning.returncode, *output) == (130, "", "\n")
    assert not has_probes(shop.pid)


def piped(script: str, folder: Path) -> str:
    """What the script prints; it may fail at nothing, and say nothing else."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_top_prints_tables_without_a_terminal(tmp_path: Path, shop: Target) -> None:
    text = piped(f"{TOP} --pid {shop.pid} --profile block --interval 0.5 --batch 2", tmp_path)
    assert "\x1b" not in text
    tables = text.split("\n\n")
    assert len(tables) == 2
    for table in tables:
        assert re.search(rf"{GET} +shop\.go:\d+$", table, re.MULTILINE)
    assert not has_probes(shop.pid)


@pytest.mark.full
def test_top_ends_when_its_pipe_is_closed(tmp_path: Path, shop: Target) -> None:
    script = f"{TOP} --pid {shop.pid} --profile block --interval 0.2 | head -n 1"
    assert re.fullmatch(rf"ebpfprof top  block  demo {shop.pid} .*\n", piped(script, tmp_path))
    assert not has_probes(shop.pid)


def test_scripts_get_json_without_the_live_table_being_imported(
    tmp_path: Path, shop: Target
) -> None:
    run = f"{TOP} --pid {shop.pid} --profile block,mutex --by-lock --interval 0.5 --json"
    # A terminal does not matter, and textual is not there.
    folder = tmp_path / "textual"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError('this is not for scripts')")
    with screen(tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}") as terminal:
        terminal.type(f"{run} --batch 2 > twice; echo ended $?")
        terminal.wait_for("^ended 0$")
    twice = [json.loads(line) for line in (tmp_path / "twice").read_text().splitlines()]
    schema = json.loads((ROOT / "docs" / "top.schema.json").read_text())
    for document in twice:
        jsonschema.validate(document, schema)
        (target,) = document["targets"]
        assert target["pid"] == shop.pid
        block, _, locks = document["tables"]
        assert any(row["name"] == "main.(*PriceCache).Get" for row in block["rows"])
        assert any(row["name"] == "main.PriceCache.mu" for row in locks["rows"])
    assert len(twice) == 2
    assert not has_probes(shop.pid)


@pytest.mark.full
def test_a_program_that_hangs_is_reported(tmp_path: Path) -> None:
    with (
        running(NEWEST, "plain") as run,
        screen(tmp_path, 80, 24, PYTHONPATH=str(ROOT)) as terminal,
    ):
        pid = run.target.pid
        command = f"{shlex.quote(sys.executable)} -m ebpfprof top --pid {pid} --profile block"
        terminal.type(f"{command} --interval 1; echo status $?")
        terminal.wait_for(rf"goroutines of process {pid} did not move for ", "ebpfprof dump --pid")
        terminal.press("q")
        end(terminal, run.target)
        run.target.kill()


def test_without_textual_it_says_what_to_do(tmp_path: Path, shop: Target) -> None:
    code = (
        "import sys; sys.modules['textual'] = None; from ebpfprof.__main__ import main; "
        f"sys.argv[1:] = ['top', '--pid', '{shop.pid}']; main()"
    )
    with screen(tmp_path, 80, 24, PYTHONPATH=str(ROOT)) as terminal:
        terminal.type(f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}; echo status $?")
        text = terminal.wait_for("^status 1$")
    assert "--once or --batch N" in " ".join(text.split())
    assert not has_probes(shop.pid)
