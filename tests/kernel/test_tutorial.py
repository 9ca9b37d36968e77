"""docs/tutorial.md: each command runs and prints the promised words.

A command is what stands behind "$ " in an indented block. Behind such a block, a comment in the
page, `<!-- shows: ONE; ANOTHER -->`, says what the last of its commands must print.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.targets_run import Target
from tests.toolchains import toolchain

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
_SHOWS = re.compile(r"<!-- shows: (.*) -->")
_FOLDER = "/tmp/shop"
_DEADLINE_S = 600  # the first build compiles Go's packages, too


@dataclass(frozen=True)
class Step:
    """Commands to type, what the page says they print, and what the last must print."""

    commands: tuple[str, ...]
    printed: str
    promised: tuple[str, ...]


def steps(text: str) -> Iterator[Step]:
    """The blocks of the page that have commands or promises."""
    block: list[str] = []
    for line in text.splitlines():
        if line.startswith("    ") or not line:
            block.append(line[4:])
            continue
        promised = _SHOWS.fullmatch(line)
        if any(block) and (promised or any(each.startswith("$ ") for each in block)):
            yield Step(
                tuple(each[2:] for each in block if each.startswith("$ ")),
                "\n".join(each for each in block if not each.startswith("$ ")),
                tuple(promised[1].split("; ")) if promised else (),
            )
        block = []


class Terminals:
    """The terminals of a reader: one for the shop, one for the server, one more."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        self._folder = folder
        self._held = held
        self._where = ROOT
        self._shop: Target | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = str(probe.getsockname()[1])
        tools = folder / "tools"
        tools.mkdir()
        ours = f"{shlex.quote(sys.executable)} -m ebpfprof"
        go = toolchain("1.27")
        for name, line in {
            "ebpfprof": ours,
            "go": shlex.quote(str(go.goroot / "bin" / "go")),
            "sudo": "",
        }.items():
            (tools / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
            (tools / name).chmod(0o755)
        self._env = {
            **go.environment(),
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PPROF_TMPDIR": str(folder),
        }

    def type(self, command: str) -> str:
        """Run a command as the page has it, but for a shorter time; return what it printed."""
        command = command.replace(_FOLDER, str(self._folder / "shop"))
        command = re.sub(r"--duration \d+", "--duration 2", command)
        command = command.replace("seconds=5", "seconds=2").replace("6060", self._port)
        words = shlex.split(command)
        if words == ["./shop"]:
            return self._start_shop()
        if words[:3] == ["sudo", "ebpfprof", "serve"]:
            return self._serve([*words[1:], "--listen", f"127.0.0.1:{self._port}"])
        if words[:3] == ["sudo", "ebpfprof", "run"]:
            return self._run(words)
        if words[0] == "cd":
            self._where = self._where / words[1]
            return ""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._where,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_DEADLINE_S,
        )
        assert done.returncode == 0, f"{command}:\n{done.stdout}"
        return done.stdout

    def press_enter(self) -> str:
        """What the shop says about itself."""
        assert self._shop
        return self._shop.ask("", "")

    def _start_shop(self) -> str:
        self._end_shop()
        self._shop = Target.start(self._where / "shop")
        self._held.callback(self._end_shop)
        return self._shop.output[0]

    def _end_shop(self) -> None:
        if self._shop:
            self._shop.kill()
            self._shop = None

    def _serve(self, words: list[str]) -> str:
        server = subprocess.Popen(
            words, cwd=self._where, env=self._env, stderr=subprocess.PIPE, text=True
        )
        assert server.stderr
        self._held.callback(server.stderr.close)
        self._held.callback(server.wait, _DEADLINE_S)
        self._held.callback(server.send_signal, signal.SIGINT)
        return server.stderr.readline()

    def _run(self, words: list[str]) -> str:
        self._end_shop()
        script = 'cd "$0" && exec "$@" 2>&1'
        arguments = ("-c", script, str(self._where), *words)
        with Target.start(Path("/bin/bash"), *arguments, env=self._env) as running:
            running.expect("Next:")
        return "\n".join(running.output)


@pytest.mark.full
def test_every_command_of_the_tutorial_shows_the_promised_words(tmp_path: Path) -> None:
    found = list(steps(TUTORIAL.read_text()))
    assert sum(len(step.commands) for step in found) >= 14
    with ExitStack() as held:
        terminals = Terminals(tmp_path, held)
        for step in found:
            shown = ""
            for command in step.commands:
                shown = terminals.type(command)
            if "requests a second" in step.printed:
                shown = terminals.press_enter()
            for words in step.promised:
                assert words in shown, f"{step.commands}: {words!r} is not in:\n{shown}"


def test_outputs_in_the_tutorial_have_the_promised_words() -> None:
    for step in steps(TUTORIAL.read_text()):
        if len(step.printed.splitlines()) > 3:
            missing = [words for words in step.promised if words not in step.printed]
            assert missing == [], step.commands


def test_code_in_the_tutorial_equals_the_shops() -> None:
    text = TUTORIAL.read_text()
    touch = (ROOT / "tests/targets/shop/touch.go").read_text()
    function = touch[touch.index("// Touch") :].rstrip("\n")
    assert "\n".join("    " + line for line in function.splitlines()) in text
    fixed = (ROOT / "tests/targets/shop/touch_fixed.go").read_text()
    lines = "\ts.journal.Append(customer)\n\ts.mu.Lock()\n\tdefer s.mu.Unlock()\n"
    assert lines in fixed
    assert "".join(f"    {line}\n" for line in lines.splitlines()) in text
    # Where the page says that the lock is taken and released.
    numbered = touch.splitlines()
    assert numbered[9 - 1] == "\ts.mu.Lock()"
    assert numbered[14 - 1] == "\treturn s.visits"
