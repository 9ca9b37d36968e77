"""`ebpfprof dump` shows what goroutines wait for: files, system calls, the end of a sleep."""

from __future__ import annotations

import json
import re
from pathlib import Path
from time import sleep

import psutil
import pytest

from tests.builds import builds, versions
from tests.kernel.namespaces import NEEDS_NAMESPACES
from tests.kernel.oncall_program import Facts, OnCall, oncall
from tests.kernel.programs import program
from tests.targets_run import Target

HOUR_S = 3600


@pytest.mark.parametrize(("version", "mode"), builds())
def test_goroutines_that_wait_for_files_and_for_a_time(version: str, mode: str) -> None:
    with oncall(version, mode) as run:
        found = run.dump("--apart", "0")
        facts = run.facts
    waits = {name: found[each["id"]]["waits_for"] for name, each in facts.items()}
    files = {
        "readTCP": ("read", "tcp", False),
        "writeTCP": ("write", "tcp", False),
        "acceptTCP": ("read", "tcp", True),
        "readUDP": ("read", "udp", False),
        "acceptUnix": ("read", "unix", True),
        "readPipe": ("read", "pipe", False),
    }
    for name, (way, kind, listens) in files.items():
        each, fact = waits[name]["file"], facts[name]
        assert (each["waits_to"], each["kind"], each["listens"]) == (way, kind, listens), name
        assert each["fd"] == fact["fd"], name
        assert (each["local"] or "") == fact["local"].removeprefix("[::]"), name
        assert (each["peer"] or "") == fact["peer"], name
        assert (each["path"] or "") == fact["path"], name
    for name, hours in {"sleepLong": 1, "sleepAgain": 2}.items():
        assert (hours - 0.5) * HOUR_S < waits[name]["wakes_in_s"] < hours * HOUR_S
    assert {name for name, each in waits.items() if each and "file" in each} == set(files)


def test_the_text_says_which_socket_and_when_a_sleep_ends() -> None:
    with oncall() as run:
        text = run.text("--apart", "0")
        facts = run.facts
    here, there = facts["readTCP"]["local"], facts["readTCP"]["peer"]
    fd = {name: each["fd"] for name, each in facts.items()}
    port = facts["acceptTCP"]["local"].rpartition(":")[2]
    for line in (
        f"reads from {there}, here {here} (tcp, fd {fd['readTCP']})",
        f"writes to {facts['writeTCP']['peer']}, here {facts['writeTCP']['local']} "
        f"(tcp, fd {fd['writeTCP']})",
        f"accepts connections on :{port} (tcp, fd {fd['acceptTCP']})",
        f"reads from {facts['readUDP']['local']} (udp, fd {fd['readUDP']})",
        f"accepts connections on unix {facts['acceptUnix']['path']} (fd {fd['acceptUnix']})",
        f"reads from a pipe (fd {fd['readPipe']})",
    ):
        assert f"\n    {line}\n" in text
    assert re.search(r"\n    wakes in (1\.00 h|5\d\.\d min)\n", text)  # an hour, or less by now


@pytest.mark.parametrize(("version", "mode"), builds())
def test_a_system_call_has_its_name_its_arguments_and_its_file(version: str, mode: str) -> None:
    with oncall(version, mode) as run:
        found = run.dump("--apart", "0")
        fact = run.facts["readInCall"]
    each = found[fact["id"]]
    assert (each["state"], each["locked_to_thread"]) == ("syscall", True)
    assert each["waits_for"]["thread"] == {"id": fact["thread"], "runs": False}
    call = each["waits_for"]["system_call"]
    assert (call["number"], call["name"]) == (0, "read")
    assert [arg["name"] for arg in call["arguments"]] == ["fd", "buffer", "count"]
    assert (call["arguments"][0]["value"], call["arguments"][2]["value"]) == (fact["fd"], 1)
    assert (call["file"]["kind"], call["file"]["fd"]) == ("pipe", fact["fd"])


@pytest.mark.parametrize("version", versions())
def test_a_running_goroutine_whose_thread_blocks_is_reported(version: str) -> None:
    with oncall(version) as run:
        fact = run.ask("bare")["readBare"]
        state = Path(f"/proc/{run.target.pid}/task/{fact['thread']}/syscall")
        while not state.read_text().startswith(f"0 {fact['fd']:#x} "):
            sleep(0.001)
        each = run.dump("--apart", "0")[fact["id"]]
        text = run.text("--apart", "0")
    assert (each["state"], each["stack"]) == ("running", [])
    assert each["waits_for"]["thread"] == {"id": fact["thread"], "runs": False}
    assert each["waits_for"]["system_call"]["name"] == "read"
    assert re.search(
        rf"\n    in read\(fd {fact['fd']}, buffer 0x[0-9a-f]+, count 1\): a pipe, "
        rf"thread {fact['thread']}\n    \(no stack in memory: ",
        text,
    )


@pytest.mark.full
@pytest.mark.alone  # beside other tests the target's threads have no processor for a minute
def test_goroutines_on_a_processor_are_running_without_a_stack() -> None:
    with oncall() as run:
        run.target.ask("spin 4", "spinning")
        running: list[Facts] = []
        while not running:
            found = run.dump("--apart", "0")
            running = [
                each
                for each in found.values()
                if each["state"] == "running" and (each["waits_for"] or {}).get("thread")
            ]
    for each in running:
        assert each["stack"] == []
        assert each["waits_for"]["system_call"] is None


@NEEDS_NAMESPACES
def test_threads_of_a_process_in_a_pid_namespace_have_their_numbers_here() -> None:
    path = program("oncall")
    command = ("--pid", "--fork", "--mount-proc", "--kill-child", str(path))
    with Target.start(Path("/usr/bin/unshare"), *command) as target:
        fact = json.loads(target.output[0])["readInCall"]
        (child,) = psutil.Process(target.pid).children()
        run = OnCall(target, {})
        found = run.dump("--apart", "0", pid=child.pid)
        threads = {each.id for each in child.threads()}
        target.kill()
    thread = found[fact["id"]]["waits_for"]["thread"]["id"]
    assert thread != fact["thread"]
    assert thread in threads
    assert found[fact["id"]]["waits_for"]["system_call"]["name"] == "read"
