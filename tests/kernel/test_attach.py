"""`ebpfprof attach` as a user meets it: what it prints and writes, and the owner of its files."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from tests.kernel.kernel_state import bpf_objects, has_probes
from tests.kernel.programs import TARGETS, program
from tests.recorder import (
    BLOCK_ONLY,
    COMMAND,
    DEADLINE_S,
    event_count,
    only_profile,
    recording,
    run,
    timeless,
)
from tests.targets_run import Target
from tests.toolchains import toolchain

OWNER = 12345


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """A program in which a goroutine waits a thousand times a second."""
    with Target.start(program("ticker")) as running:
        yield running


def test_attach_writes_a_profile_that_gos_pprof_reads(target: Target, tmp_path: Path) -> None:
    """The whole of what it prints is in tests/recorded."""
    finished = run("--pid", str(target.pid), "--duration", "0.5", folder=tmp_path)
    assert finished.code == 0
    (name,) = (path.name for path in tmp_path.iterdir())
    assert timeless(name) == f"ticker-{target.pid}.block.pb.gz" != name
    assert finished.stderr == (
        f"recording block profile of process {target.pid} (ticker) for 0.5 s; Ctrl-C ends it\n"
    )
    lines = finished.stdout.decode().splitlines()
    assert "main.receive" in lines[0]
    assert f"Written: {name}" in lines
    assert lines[-1] == "Every wait was recorded."
    top = toolchain("1.27").go("tool", "pprof", "-top", name, cwd=tmp_path)
    assert "runtime.chanrecv2" in top


@pytest.mark.full
def test_attach_records_for_the_given_duration(target: Target, tmp_path: Path) -> None:
    run("--pid", str(target.pid), "--duration", "1.5", folder=tmp_path)
    profile = only_profile(tmp_path)
    assert profile.duration_ns >= 1.5e9
    # A tick takes a millisecond at least, and waits on one side.
    assert 10 < event_count(profile) <= profile.duration_ns / 1e6


@pytest.mark.full
def test_force_replaces_an_existing_file(target: Target, tmp_path: Path) -> None:
    (tmp_path / "x.pb.gz").write_bytes(b"old")
    arguments = ("--pid", str(target.pid), "-d", "0.2", "-o", "x.pb.gz")
    finished = run(*arguments, "--force", folder=tmp_path)
    assert finished.code == 0, finished.stderr
    assert event_count(only_profile(tmp_path))


def test_several_processes_have_a_file_each_and_share_a_program(
    target: Target, tmp_path: Path
) -> None:
    with Target.start(program("nopprof", "1.19", "pie")) as other:
        with recording(target.pid, tmp_path) as alone:
            programs = kinds(alone.pid, "prog")
        arguments = ("--pid", f"{other.pid},{target.pid}")
        with recording(target.pid, tmp_path, *arguments) as recorder:
            assert kinds(recorder.pid, "prog") == programs
            other.ask("go", "done")
            recorder.interrupt()
            finished = recorder.finish()
    assert finished.code == 0
    names = {f"ticker-{target.pid}.block.pb.gz", f"nopprof-{other.pid}.block.pb.gz"}
    functions = {timeless(path.name): functions_of(path) for path in tmp_path.iterdir()}
    assert functions.keys() == names
    of_ticker, of_nopprof = (functions[name] for name in sorted(names, reverse=True))
    assert "main.receive" in of_ticker
    assert {"main.handOver", "main.hold", "main.gather"} < of_nopprof
    assert not of_ticker & of_nopprof
    assert finished.stdout.decode().count("Waits of process ") == 2


@pytest.mark.full
def test_the_limit_of_open_files_is_raised(target: Target, tmp_path: Path) -> None:
    # Ten targets take some two hundred.
    limiting = ("/bin/sh", "-c", 'ulimit -S -n 64; exec "$@"', "sh", *COMMAND)
    with ExitStack() as held:
        started = [held.enter_context(Target.start(program("ticker"))) for _ in range(10)]
        pids = ",".join(str(each.pid) for each in started)
        finished = run("--pid", pids, "-d", "0.1", folder=tmp_path, command=limiting)
    assert finished.code == 0, finished.stderr
    assert len(list(tmp_path.iterdir())) == 10


def kinds(pid: int, kind: str) -> int:
    return sum(each.kind == kind for each in bpf_objects(pid))


def functions_of(path: Path) -> set[str]:
    """Functions of package main in a profile, without those of the runtime."""
    return {
        frame.function
        for sample in pprof.decode(path.read_bytes()).samples
        for location in sample.locations
        for frame in location.frames
        if frame.function.startswith("main.")
    }


@pytest.mark.full
def test_block_rate_samples_waits(target: Target, tmp_path: Path) -> None:
    rate_ns = 50_000_000
    arguments = ["--pid", str(target.pid), "-d", "0.7", "--block-rate", str(rate_ns)]
    assert run(*arguments, folder=tmp_path).code == 0
    profile = only_profile(tmp_path)
    assert f"sampled at a rate of {rate_ns} ns" in profile.comments[0]
    # Of waits of a millisecond one in fifty is taken, and then counts for all of them.
    assert profile.samples
    assert all(sample.values[1] > 0.99 * rate_ns for sample in profile.samples)


def test_the_file_belongs_to_the_user_behind_sudo(target: Target, tmp_path: Path) -> None:
    os.chown(tmp_path, OWNER, OWNER)
    sudo = {"SUDO_UID": str(OWNER), "SUDO_GID": str(OWNER)}
    assert run("--pid", str(target.pid), "-d", "0.2", folder=tmp_path, env=sudo).code == 0
    (path,) = tmp_path.iterdir()
    status = path.stat()
    assert (status.st_uid, status.st_gid) == (OWNER, OWNER)
    assert stat.S_IMODE(status.st_mode) == 0o600


@pytest.mark.full
def test_without_sudo_the_file_belongs_to_root(target: Target, tmp_path: Path) -> None:
    os.chown(tmp_path, OWNER, OWNER)
    assert run("--pid", str(target.pid), "-d", "0.2", folder=tmp_path).code == 0
    (path,) = tmp_path.iterdir()
    assert path.stat().st_uid == 0


def test_probes_are_attached_only_while_attach_records(tmp_path: Path) -> None:
    with Target.start(program("ticker")) as target:
        assert not has_probes(target.pid)
        with recording(target.pid, tmp_path) as recorder:
            assert has_probes(target.pid)
            recorder.interrupt()
            assert recorder.finish().code == 0
        assert not has_probes(target.pid)


LAST_LINE = r"(Every wait was recorded|Sampled \()[^\n]*\n"


class Terminal:
    """A terminal of some columns; what was written to it is read as it comes."""

    def __init__(self, columns: int) -> None:
        self._main, self.file = pty.openpty()
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("<4H", 40, columns, 0, 0))
        self.text = ""

    def read_until(self, pattern: str) -> str:
        """Read on until the expression is found in the text; fails if it does not come."""
        until = monotonic() + DEADLINE_S
        while not re.search(pattern, self.text):
            ready, _, _ = select.select([self._main], [], [], max(0.0, until - monotonic()))
            assert ready, self.text
            self.text += os.read(self._main, 4096).decode()
        return self.text

    def close(self) -> None:
        os.close(self._main)
        os.close(self.file)


@contextmanager
def on_terminal(
    target: Target, folder: Path, *arguments: str, columns: int = 80, env: Mapping[str, str]
) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """The command with a terminal for stdout and stderr."""
    terminal = Terminal(columns)
    process = subprocess.Popen(
        [*COMMAND, *BLOCK_ONLY, "--pid", str(target.pid), *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=terminal.file,
        stderr=terminal.file,
        env={**os.environ, **env},
    )
    try:
        yield terminal, process
    finally:
        process.kill()
        process.wait()
        terminal.close()


def test_a_terminal_shows_a_progress_bar_and_a_fitting_table(
    target: Target, tmp_path: Path
) -> None:
    env = {"TERM": "xterm", "NO_COLOR": ""}
    columns = 80
    with on_terminal(target, tmp_path, columns=columns, env=env) as (terminal, process):
        terminal.read_until(r"recording [^\n]*\n")
        terminal.read_until(r"\[\.+\] 0 of 30 s, 30 s left")
        terminal.read_until(r"\[#+\.+\] 1 of 30 s")
        process.send_signal(signal.SIGINT)
        text = terminal.read_until(LAST_LINE)
        assert process.wait(60) == 0
    # The bar is wiped out, a sentence comes first, the table is in colour and fits.
    assert re.search(r"\r\x1b\[K[^\x1b]* of waiting: [^\x1b]*\nWaits of", text)
    assert "\x1b[1m" in text
    shown = re.sub(r"\x1b\[[\d;]*[mK]", "", text)
    table = shown.partition("Written: ")[0]
    lines = [line.rpartition("\r")[2] for line in table.split("\r\n")[1:]]
    assert [line for line in lines if len(line) > columns] == []


@pytest.mark.full
def test_dumb_terminals_and_no_color_are_respected(target: Target, tmp_path: Path) -> None:
    env = {"TERM": "xterm", "NO_COLOR": "1"}
    with on_terminal(target, tmp_path, "-d", "0.3", env=env) as (terminal, process):
        text = terminal.read_until(LAST_LINE)
        assert process.wait(60) == 0
    assert set(re.findall(r"\x1b\[[\d;]*\w", text)) == {"\x1b[K"}
    with on_terminal(target, tmp_path, "-d", "0.3", env={"TERM": "dumb"}) as (terminal, process):
        text = terminal.read_until(LAST_LINE)
        assert process.wait(60) == 0
    assert "\x1b" not in text
    assert "[" not in text.partition("Waits of")[0]


@pytest.mark.full
def test_an_html_file_has_lines_of_source_where_asked(tmp_path: Path) -> None:
    with Target.start(program("demo")) as target:
        for name, more in (("with", ("--source", str(TARGETS / "demo"))), ("without", ())):
            folder = tmp_path / name
            folder.mkdir()
            arguments = ("--pid", str(target.pid), "-d", "1", "-f", "html", *more)
            finished = run(*arguments, folder=folder)
            assert finished.code == ExitCode.OK, finished.stderr
        refused = run(
            *("--pid", str(target.pid), "-d", "1", "--source", str(TARGETS)), folder=tmp_path
        )
    assert refused.code == ExitCode.USAGE
    assert "--source needs HTML" in refused.stderr
    pages = {each.parent.name: each.read_text() for each in tmp_path.glob("*/*.html")}
    line = "c.mu.Lock()"
    assert line in (TARGETS / "demo" / "shop.go").read_text()
    assert line in pages["with"]
    assert line not in pages["without"]
