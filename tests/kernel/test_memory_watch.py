"""`ebpfprof memory --watch`: which stacks hold more and more memory."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ebpfprof.errors import ExitCode
from tests.builds import NEWEST, VERSIONS, versions
from tests.differential.test_heap import EVERY_ALLOCATION, order, running
from tests.kernel.programs import program
from tests.targets_run import Target

COMMAND = (sys.executable, "-m", "ebpfprof", "memory", "--watch", "--every", "0.2")
OBJECT_BYTES = 4096


@contextmanager
def watching(target: Target, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [*COMMAND, "--pid", str(target.pid), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def after(process: subprocess.Popen[str], collections: int) -> dict[str, Any]:
    """The first sample with that many collections."""
    assert process.stdout
    for line in process.stdout:
        found: dict[str, Any] = json.loads(line)
        if found["collections"] >= collections:
            return found
    raise AssertionError(process.stderr.read() if process.stderr else "")


@pytest.mark.parametrize("version", versions("1.19", NEWEST))
def test_a_stack_that_leaks_is_reported_and_no_other(version: str) -> None:
    with (
        running(version, rate=EVERY_ALLOCATION, GOGC="off") as target,
        watching(target, "--json") as process,
    ):
        for sample in range(1, 5):
            for command in ("leak 10", "turn", "make 3", "drop", "gc"):
                order(target, command)
            found = after(process, sample)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == ExitCode.OK
    growing = {each["stack"][0]["function"]: each for each in found["growing"]}
    leak = growing.pop("main.leak")
    assert leak["in_use_bytes"] == 40 * OBJECT_BYTES
    assert leak["grown_bytes"] == 30 * OBJECT_BYTES
    assert leak["error_bytes"] == 0
    assert "main.turn" not in growing
    assert "main.slices" not in growing


def test_the_text_says_how_fast() -> None:
    with (
        running(NEWEST, rate=4 * OBJECT_BYTES, GOGC="off") as target,
        watching(target) as process,
    ):
        assert process.stdout
        messages: list[str] = []
        for _ in range(4):
            for command in ("leak 100", "turn", "gc"):
                order(target, command)
            seen = len(messages)
            while not any("collection" in line for line in messages[seen:]):
                messages.append(process.stdout.readline())
            messages.append(process.stdout.readline())
        while not any("main.leak" in line for line in messages):
            messages.append(process.stdout.readline())
    text = "".join(messages)
    assert "in use" in text
    assert "a minute" in text
    assert "1 stack only grows" in text


@pytest.mark.parametrize("version", versions())
def test_a_program_without_a_memory_profile_shows_types_and_sizes(version: str) -> None:
    with (
        Target.start(program("memory", version), env={"GOGC": "off"}) as target,
        watching(target, "--json") as process,
    ):
        for sample in range(1, 5):
            for command in ("keep 100", "gc"):
                order(target, command)
            found = after(process, sample)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == ExitCode.OK
        assert process.stderr
        assert "keeps no memory profile, so types and sizes of objects" in process.stderr.read()
    growing = {each["what"]: each for each in found["growing"]}
    assert growing["objects of 96 bytes, of any type"]["grown_bytes"] >= 300 * 96
    record = growing.get("main.record")
    assert (record is None) == (version in VERSIONS[: VERSIONS.index("1.22")])
    if record is not None:
        assert record["in_use_bytes"] == 400 * 2048
        assert record["grown_bytes"] == 300 * 2048
    giants = growing["large objects, of any type"]
    assert giants["grown_bytes"] >= 30 * (100 << 10)
