"""`ebpfprof dump` tells what goroutines wait for: sockets, files, the end of a sleep."""

from __future__ import annotations

import pytest

from tests.builds import BUILDS
from tests.kernel.oncall_program import oncall

HOUR_S = 3600


@pytest.mark.parametrize(("version", "mode"), BUILDS)
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
        "wakes in 1.00 h",
    ):
        assert f"\n    {line}\n" in text
