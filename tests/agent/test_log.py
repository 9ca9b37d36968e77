"""The agent's log: no storms; and what is reported to systemd."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ebpfprof.agent.log import MOST, PERIOD_S, Log
from ebpfprof.system.notify import Notifier
from ebpfprof.system.own_usage import own_usage


def test_lines_that_differ_in_names_and_numbers_are_one_storm() -> None:
    lines: list[str] = []
    now = [0.0]
    log = Log(lines.append, lambda: now[0])
    for number in range(100):
        log.say(f"process {number} (shop{number}) is of go1.{number}")
    assert len(lines) == MOST
    assert lines[0] == "ebpfprof: process 0 (shop0) is of go1.0"
    assert lines[-1].endswith("(similar lines are omitted for ten minutes)")
    log.say("something else")
    assert lines[-1] == "ebpfprof: something else"
    now[0] = PERIOD_S
    log.say("process 7 (shop) is of go1.1")
    assert lines[-1] == (
        f"ebpfprof: process 7 (shop) is of go1.1 ({100 - MOST} more similar lines were omitted)"
    )


def test_what_is_known_of_lines_is_bounded() -> None:
    log = Log(lambda _: None)
    for number in range(1000):
        log.say("x" * number)
    assert len(log._shapes) <= 256


def test_what_a_target_writes_can_not_move_the_cursor() -> None:
    lines: list[str] = []
    Log(lines.append).say("process 7 (\x1b[2J\nx) ended")
    assert lines == ["ebpfprof: process 7 (\\x1b[2J\\nx) ended"]


@pytest.mark.parametrize("is_abstract", [False, True])
def test_messages_for_systemd(is_abstract: bool, tmp_path: Path) -> None:
    address = f"@{tmp_path}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address.replace("@", "\0"))
        notifier = Notifier(address)
        notifier.ready("3 processes")
        notifier.status("4 processes")
        notifier.reloading()
        notifier.stopping()
        notifier.alive()  # without a watchdog
        manager.setblocking(False)
        found = [manager.recv(1000).decode() for _ in range(4)]
        with pytest.raises(BlockingIOError):
            manager.recv(1000)
    assert found[:2] == ["READY=1\nSTATUS=3 processes", "STATUS=4 processes"]
    assert found[2].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert found[3] == "STOPPING=1"


def test_without_systemd_nothing_happens(tmp_path: Path) -> None:
    Notifier("").ready("x")
    Notifier(str(tmp_path / "missing")).ready("x")


def test_own_usage_grows() -> None:
    before = own_usage()
    sum(range(3_000_000))
    after = own_usage()
    assert after.cpu_s > before.cpu_s
    assert after.memory_bytes > 1 << 20


def test_own_usage_has_the_memory_of_children() -> None:
    before = own_usage()
    size = 64 << 20
    command = [sys.executable, "-c", f"data = b'x' * {size}; print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        now = own_usage()
        child.communicate(b"\n")
    assert size < now.memory_bytes - before.memory_bytes < 2 * size
