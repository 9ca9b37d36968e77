"""A target with hostile names, arguments and labels."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from tests.builds import in_full
from tests.kernel.hostileprogram import (
    LABEL_KEY,
    LABEL_VALUE,
    MARK,
    NAME,
    RAW,
    TITLE,
    hostile_target,
)
from tests.kernel.screens import Screen, screen
from tests.kernel.verbs import verb
from tests.recorder import check_profile, run
from tests.targets_run import Target

ROOT = Path(__file__).parents[2]
COMMAND = f"{shlex.quote(sys.executable)} -m ebpfprof"
FUNCTION = "main." + NAME.decode("utf-8", "replace") + "_f"
SHOWN = r"main.\x1b]0;OWNED\x07\x1b[2J"
"""How the function's name begins where people read it."""
COMMENT = f"<!--{MARK}"
"""What it has that nothing else has."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with hostile_target(tmp_path_factory.mktemp("bin")) as hostile:
        yield hostile


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Screen]:
    with screen(tmp_path, columns=220, PYTHONPATH=str(ROOT)) as shown:
        yield shown


def check_pprof(data: bytes) -> None:
    check_profile(data, "of the hostile target")
    profile = pprof.decode(data)
    names = {f.function for s in profile.samples for at in s.locations for f in at.frames}
    labels = {(label.key, label.value) for s in profile.samples for label in s.labels}
    assert FUNCTION in names
    escaped = [each.decode("utf-8", "backslashreplace") for each in (LABEL_KEY, LABEL_VALUE)]
    assert tuple(escaped) in labels


def check_lines(data: bytes) -> None:
    lines = data.decode().split("\n")
    assert all(line.isprintable() for line in lines)
    assert MARK in data.decode()


def check_folded(data: bytes) -> None:
    check_lines(data)
    for line in data.decode().splitlines():
        stack, _, value = line.rpartition(" ")
        assert int(value) > 0
        # The semicolon of the name is none between frames.
        assert all(frame.count("\\x1b]0") <= 1 for frame in stack.split(";"))
        assert not any(frame.startswith("OWNED") for frame in stack.split(";"))


def check_json(data: bytes) -> None:
    assert data.isascii()
    assert json.loads(data)
    assert MARK in data.decode()
    assert not RAW - {"\n"} & set(data.decode())


def check_html(data: bytes) -> None:
    page = data.decode()
    assert page.lower().count("<script") == page.lower().count("</script") == 3
    assert "<img" not in page
    assert "<!--" not in page
    assert MARK in page
    assert not RAW & set(page)


CHECKS: dict[str, tuple[str, Callable[[bytes], None]]] = {
    "folded": ("folded", check_folded),
    "speedscope": ("speedscope.json", check_json),
    "html": ("html", check_html),
    "json": ("json", check_json),
    "text": ("txt", check_lines),
}


@pytest.mark.parametrize("form", ["html", *in_full(*(form for form in CHECKS if form != "html"))])
def test_each_format_keeps_hostile_names_as_text(form: str, target: Target, tmp_path: Path) -> None:
    suffix, check = CHECKS[form]
    # So often that it is seen however little of the processor it gets.
    kind, *often = ("cpu", "--hz", "999") if form == "text" else ("block",)
    arguments = ("--pid", str(target.pid), "-d", "0.5", "-f", form, "--profile", kind, *often)
    finished = run(*arguments, folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    for text in (finished.stdout.decode(), finished.stderr):
        assert all(line.isprintable() for line in text.split("\n"))
    (path,) = tmp_path.iterdir()
    assert re.fullmatch(rf"[A-Za-z0-9_.+-]+\.{kind}\.{re.escape(suffix)}", path.name)
    check(path.read_bytes())


def test_attach_sends_no_hostile_escape_sequence_to_the_terminal(
    terminal: Screen, target: Target, tmp_path: Path
) -> None:
    before = terminal.title
    terminal.type(
        f"{COMMAND} attach --pid {target.pid} -d 1 --by-lock --open --hz 999; echo status $?"
    )
    terminal.wait_for(r"^status 0$")
    assert_told_nothing(terminal, before)
    for kind in ("block", "cpu"):
        (written,) = tmp_path.glob(f"*.{kind}.pb.gz")
        check_pprof(written.read_bytes())
    for again in ("report", "diff"):
        (file, *_) = [path.name for path in tmp_path.iterdir() if "block" in path.name]
        files = f"{file} {file}" if again == "diff" else file
        terminal.type(f"clear; {COMMAND} {again} {files}; echo {again} $?")
        terminal.wait_for(rf"^{again} 0$")
        assert terminal.title == before


@pytest.mark.full
def test_list_sends_no_hostile_escape_sequence_to_the_terminal(
    terminal: Screen, target: Target
) -> None:
    before = terminal.title
    terminal.type(f"clear; {COMMAND} list --name '*EVIL*'; echo status $?")
    terminal.wait_for(r"^status 0$", rf"^ *{target.pid} .*{MARK}")
    assert terminal.title == before
    row = json.loads(verb("list", "--json", "--name", "*EVIL*").stdout)["processes"][0]
    assert row["command"].encode("utf-8", "backslashreplace").count(b"EVIL") == 3
    assert row["name"].startswith("\x1b]0;OWNED\x07\n")


@pytest.mark.full
def test_top_sends_no_hostile_escape_sequence_to_the_terminal(
    terminal: Screen, target: Target
) -> None:
    before = terminal.title
    terminal.type(
        f"{COMMAND} top --pid {target.pid} --interval 0.5 --by-lock --hz 999; echo status $?"
    )
    terminal.wait_for("^ebpfprof top  locks", rf"^ .*{COMMENT}")
    for key, shown in (("x", "^ebpfprof top  CPU"), ("b", "^ebpfprof top  block")):
        terminal.press(key)
        text = terminal.wait_for(shown, COMMENT)
        assert not RAW & set(text)
    terminal.press("/")
    terminal.type_text("EVIL")
    terminal.press("Enter")
    terminal.wait_for(r"^\d+ of \d+ rows match EVIL", rf"^ .*{COMMENT}")
    terminal.press("Enter")
    text = terminal.wait_for("esc Back", rf"EVIL\\xff=v.*{MARK}", COMMENT)
    assert not RAW & set(text)
    assert terminal.title == before
    terminal.press("q")
    terminal.wait_for(r"^status 0$")
    assert terminal.title == before


def assert_told_nothing(terminal: Screen, title: str) -> None:
    assert terminal.title == title != TITLE
    seen = terminal.history
    assert SHOWN in seen
    assert "attach --pid" in seen, "the screen was not cleared"
    assert not RAW & set(seen)


@pytest.mark.full
def test_tables_without_a_terminal_have_no_escape_sequences(target: Target, tmp_path: Path) -> None:
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            "ebpfprof",
            "top",
            "--pid",
            str(target.pid),
            "--once",
            "--profile",
            "block",
        ],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    check_lines(finished.stdout)
