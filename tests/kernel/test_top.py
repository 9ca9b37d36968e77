"""`ebpfprof top` in a real terminal, on a real program."""

from __future__ import annotations

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

import psutil
import pytest

from ebpfprof.export import pprof
from tests.kernel.kernel_state import has_probes
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
HEADINGS = r"^ +Delay/s +Share +Count/s +Mean +Total +Operation +Called from$"
KEYS = r"^q quit  Enter stacks"
SUMS = (
    r"^([\d,.]+ waits/s  )?delay [\d.]+ m?s/s(  last [\d.]+ m?s)?"
    r"(  ebpfprof itself [\d.]+% CPU)?(  target loses [a-z\d.~ ]+%)?(  nothing lost)?$"
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
        rf"\Aebpfprof top  block  demo {shop.pid} go1\.27\.\d+  for [\d.]+ m?s$",
        SUMS,
        r"^[\d,.]+ waits/s  delay .*  target loses .*  nothing lost$",
        r"^idle, hidden \(i shows it\): ",
        HEADINGS,
        rf"^>.* {GET} +shop\.go:\d+$",
        rf"{KEYS}.*\Z",
        without=WAITS_FOR_WORK,
    )
    assert has_probes(shop.pid)
    assert terminal.modes == "second 1 cursor 0"
    terminal.press("i")
    terminal.wait_for(WAITS_FOR_WORK, without="^idle, hidden")

    terminal.press("p")
    (first, *_) = terminal.wait_for("PAUSED").splitlines()
    terminal.press("i")
    text = terminal.wait_for("^idle, hidden", without=WAITS_FOR_WORK)
    assert text.splitlines()[0] == first
    terminal.press("p")
    terminal.wait_for("^ebpfprof top", without=re.escape(first.replace("  PAUSED", "")))

    terminal.press("q")
    end(terminal, shop)
    terminal.wait_for(GET, without=KEYS)  # the last table stays
    assert "--profile block; echo" in terminal.history, "what was there before is there again"
    assert modes(terminal) == before


def test_lines_in_narrow_windows_have_whole_parts(tmp_path: Path, shop: Target) -> None:
    idle = r"^idle, hidden \(i shows it\): [\d.]+ m?s/s, [\d,.]+ waits/s( \(.*\))?$"
    keys = r"^q quit  Enter stacks  / filter  d c m n sort  p pause  w write  h help\Z"
    with screen(tmp_path, 80, 24, PYTHONPATH=str(ROOT)) as terminal:
        begin(terminal, shop)
        name = rf"demo {shop.pid} go1\.27\.\d+"
        title = rf"\Aebpfprof top  block  {name}  for [\d.]+ m?s$"
        terminal.wait_for(title, SUMS, r"^[\d,.]+ waits/s  delay .*  target loses ", idle, keys)
        terminal.resize(60, 24)
        terminal.wait_for(title, SUMS, r"^[\d,.]+ waits/s  delay ", idle, r"  h help\Z")
        terminal.resize(40, 24)
        title = rf"\Aebpfprof top  block  (demo )?{shop.pid}(  for [\d.]+ m?s)?$"
        terminal.wait_for(title, SUMS, r"^idle, hidden \(i\): [\d.]+ m?s/s$", r"  h help\Z")
        terminal.press("q")
        end(terminal, shop)


def test_keys_sort_filter_choose_and_show_stacks(terminal: Screen, shop: Target) -> None:
    begin(terminal, shop, options="--profile block,mutex")
    terminal.press("n")
    terminal.wait_for(rf"{DISCOUNT}[\s\S]*{GET}")
    terminal.press("r")
    terminal.wait_for(rf"{GET}[\s\S]*{DISCOUNT}")
    terminal.press("d", "r", "j")
    terminal.wait_for(GET, "^>", without=rf"^>.*{GET}")
    terminal.press("Escape")
    terminal.wait_for(rf"^>.*{GET}")

    terminal.type_text("/Discount|(")
    terminal.wait_for(r"^/Discount\|\(_  This is no regular expression")
    terminal.press("BSpace", "BSpace", "Enter")
    terminal.wait_for(r"^1 of \d+ rows match Discount$", f"^>.*{DISCOUNT}", without=GET)
    terminal.press("Enter")
    terminal.wait_for(
        r"^RWMutex\.RLock main\.\(\*Config\)\.Discount shop\.go:\d+$",
        r"^[\d.]+ m?s/s \([\d.]+%\)  [\d.,]+/s  since the start: .* times$",
        r"^    sync\.\(\*RWMutex\)\.RLock ",
        r"^    main\.\(\*Config\)\.Discount.* /.*/shop\.go:\d+$",
        r"^Esc back",
    )
    terminal.press("Escape")
    terminal.wait_for(KEYS)
    terminal.press("/", "Escape")
    terminal.wait_for(GET)

    terminal.press("u")
    terminal.wait_for(r"Mutex\.Unlock +main\.\(\*PriceCache\)\.Get")
    terminal.press("x")
    terminal.wait_for("^The CPU profile is not recorded")
    terminal.press("h")
    terminal.wait_for("^r  reverse the order")
    terminal.press("C-c")
    end(terminal, shop)


def test_top_shows_locks_and_cpu_time_and_writes_profiles(
    terminal: Screen, shop: Target, tmp_path: Path
) -> None:
    terminal.resize(140, 40)
    terminal.type(f"{TOP} --pid {shop.pid} --interval 0.5 --by-lock; echo status $?")
    terminal.wait_for(r"Held Type +Lock$", r"^>.* sync\.Mutex +main\.PriceCache\.mu +0x[0-9a-f]+$")
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


def test_top_draws_windows_of_any_size_without_colours(tmp_path: Path, shop: Target) -> None:
    """It can also be suspended, and SIGTERM ends it as q does."""
    plain = {"NO_COLOR": "1", "LC_ALL": "C"}
    with screen(tmp_path, 80, 24, PYTHONPATH=str(ROOT), **plain) as terminal:
        before = modes(terminal)
        begin(terminal, shop)
        assert not re.search(r"\x1b\[(\d+;)*[34][0-7][;m]", terminal.text("-e")), "no colour"
        terminal.resize(60, 8)
        terminal.wait_for(r"\Aebpfprof(.*\n){7}q quit", r"^>.*PriceCache\)\.Get$")
        terminal.resize(20, 5)
        terminal.wait_for(r"\A(.*\n){4}q quit", r"^>.*\)\.Get$")
        terminal.resize(140, 40)
        terminal.wait_for(r"\Aebpfprof(.*\n){39}q quit", r"^>.*PriceCache\)\.Get +shop\.go:\d+$")

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


def test_a_closed_terminal_leaves_no_probe(tmp_path: Path, shop: Target) -> None:
    with screen(tmp_path, PYTHONPATH=str(ROOT)) as terminal:
        begin(terminal, shop)
        (process,) = terminal.programs
    psutil.wait_procs([process], timeout=DEADLINE_S)
    assert not process.is_running()
    assert not has_probes(shop.pid)


def test_top_goes_on_when_a_target_ends(terminal: Screen, shop: Target) -> None:
    with Target.start(program("demo")) as brief:
        begin(terminal, brief, shop)
        terminal.wait_for(rf" {brief.pid} {GET}", rf" {shop.pid} {GET}", "^ebpfprof .* 2 processes")
        brief.close_input()
        brief.wait()
        terminal.wait_for(rf"^process {brief.pid} .*ended", f" {brief.pid} {GET}")
        terminal.press("w")
        terminal.wait_for(rf"^Written: .*{brief.pid}-[\d-]+\.block.* demo-{shop.pid}-[\d-]+\.block")
        terminal.press("q")
        end(terminal, shop)


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
        said = beginning.communicate(timeout=DEADLINE_S)
    finally:
        beginning.kill()
        beginning.wait()
    assert (beginning.returncode, *said) == (130, "", "\n")
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


def test_top_ends_when_its_pipe_is_closed(tmp_path: Path, shop: Target) -> None:
    script = f"{TOP} --pid {shop.pid} --profile block --interval 0.2 | head -n 1"
    assert re.fullmatch(rf"ebpfprof top  block  demo {shop.pid} .*\n", piped(script, tmp_path))
    assert not has_probes(shop.pid)
