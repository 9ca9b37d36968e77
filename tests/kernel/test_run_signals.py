"""`ebpfprof run`: signals and the terminal reach the program as without it."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
from ctypes import CDLL
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.builds import in_full
from tests.kernel.programs import program
from tests.kernel.run_command import BLOCK, COMMAND, DEADLINE_S, WAITS_OF_MAIN, has_waits, running
from tests.kernel.tampered import command as tampered
from tests.recorder import Recorder, only_profile, run


def test_the_program_inherits_ignored_signals(tmp_path: Path) -> None:
    finished = run(
        "--profile", "cpu", "--", "grep", "SigIgn", "/proc/self/status",
        folder=tmp_path, command=("/usr/bin/nohup", *COMMAND),
    )  # fmt: skip
    mask = int(finished.stdout.split()[1], 16)
    assert mask == 1 << signal.SIGHUP - 1


def test_a_signal_is_passed_on_and_the_profile_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running(str(program("brief")), "wait") as target:
        for number, name in ((signal.SIGUSR1, "user defined signal 1"), (signal.SIGHUP, "hangup")):
            os.kill(target.pid, number)
            target.expect(f"got {name}")
        os.kill(target.pid, signal.SIGINT)  # there is no terminal that would have sent it to both
        target.expect("got interrupt")
        os.kill(target.pid, signal.SIGTERM)
        target.expect("got terminated")
        assert target.wait() == 7
    assert has_waits(only_profile(tmp_path), "main.receiveInMain", WAITS_OF_MAIN)


def test_a_signal_to_another_thread_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that comes just before its main thread waits."""
    monkeypatch.chdir(tmp_path)
    with running("cat", ready=None) as target:
        assert target.ask("one", "one") == "one"
        (tracer,) = {int(tid) for tid in os.listdir(f"/proc/{target.pid}/task")} - {target.pid}
        assert CDLL(None).tgkill(target.pid, tracer, signal.SIGTERM) == 0
        assert target.wait() == 5  # it was not killed by it, but is no Go program
        assert f"ended with status {128 + signal.SIGTERM}" in target.errors


def test_ctrl_c_reaches_the_program_once_and_run_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*COMMAND, *BLOCK, "--", str(program("brief")), "wait"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(words[0], words)
    output = read_until(terminal, "ready ")
    os.write(terminal, b"\x03")
    output += read_until(terminal, "got interrupt")
    os.write(terminal, b"\x03")
    output += read_until(terminal, "got interrupt")
    os.kill(pid, signal.SIGTERM)
    output += read_until(terminal, r"Next:.*\n")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)  # not before: that hangs up
    assert os.waitstatus_to_exitcode(status) == 7
    assert output.count("got interrupt") == 2
    assert only_profile(tmp_path).samples


def test_ctrl_z_stops_run_and_program_and_fg_continues_both(tmp_path: Path) -> None:
    words = shlex.join([*COMMAND, *BLOCK, "--", str(program("sleeper"))])
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.environ.update(PYTHONPATH=str(Path(__file__).parents[2]), PS1="")
        os.execv("/bin/bash", ["bash", "--norc", "--noediting", "-i"])
    try:
        os.write(terminal, f"stty -echo; {words}\n".encode())
        child = int(re.findall(r"ready (\d+)", read_until(terminal, r"ready \d+\r"))[0])
        os.write(terminal, b"\x1a")
        read_until(terminal, r"Stopped .*\n")
        until_status(child, r"State:\tT")
        os.write(terminal, b"fg\n")
        read_until(terminal, r"-m ebpfprof run .*\n")
        until_status(child, r"State:\t[^T]")
        os.write(terminal, b"\x03")
        read_until(terminal, r"Next:.*\n")
        os.write(terminal, b'echo "status=$?"; exit 0\n')
        read_until(terminal, f"status={128 + signal.SIGINT}\r")
    finally:
        os.kill(pid, signal.SIGHUP)  # it ends what it started, too
        os.close(terminal)
        os.waitpid(pid, 0)
    assert only_profile(tmp_path)


def until_status(pid: int, pattern: str) -> None:
    """Wait until the expression is found in the status of a process; fails after DEADLINE_S."""
    until = monotonic() + DEADLINE_S
    while not re.search(pattern, status := Path(f"/proc/{pid}/status").read_text()):
        assert monotonic() < until, status
        sleep(0.01)


def test_the_program_has_the_terminal_of_run(tmp_path: Path) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && tty"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
        words = [*COMMAND, "--profile", "cpu", "--", "sh", "-c", script]
        os.execv(words[0], words)
    read_until(terminal, r"/dev/pts/\d+\r\n")
    read_until(terminal, r"Next:.*\n")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, *in_full(signal.SIGTERM)])
def test_a_signal_after_the_program_ended_aborts_the_writing(
    number: signal.Signals, tmp_path: Path
) -> None:
    words = (*BLOCK, "--", str(program("brief")), "exit", "3")
    recorder = Recorder(words, tmp_path, command=tampered("stops while writing", "run"))
    try:
        recorder.wait_until_stopped()
        recorder.send(number)
        recorder.send(signal.SIGCONT)
        finished = recorder.finish()
    finally:
        recorder.close()
    assert finished.code == 130
    assert "Aborted. Written: nothing." in finished.stderr
    assert os.listdir(tmp_path) == []


def read_until(fd: int, pattern: str) -> str:
    """Read from a terminal until the expression is found in what was read."""
    text = ""
    while not re.search(pattern, text):
        assert select.select([fd], [], [], DEADLINE_S)[0], text
        text += os.read(fd, 4096).decode()
    return text
