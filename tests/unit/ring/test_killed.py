"""A writer that is killed at any moment leaves whole files, and loses none that it wrote."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ebpfprof.ring.reader import RingArchive
from tests.unit.ring.made_up import (
    NS,
    START_S,
    WINDOW_S,
    Clock,
    goroutines_of,
    profile_of,
    ring,
    window,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

KILLS = 8
ALL = 0, 1 << 62
_MIB = 1 << 20


def write_on(folder: Path, first: int, told: Connection, max_bytes: int) -> None:
    """In a process of its own: write a window after the other, and tell each that is written."""
    clock = Clock()
    with ring(folder, clock, max_bytes=max_bytes) as writer:
        number = first
        while True:
            at_s = START_S + number * WINDOW_S
            clock.now_s = at_s + WINDOW_S
            profiles = [profile_of(1, NS, at_s, bulk_bytes=20_000), goroutines_of(5, at_s)]
            assert writer.write(window(at_s, profiles))
            told.send(number)
            number += 1


def kills(folder: Path, seed: int, max_bytes: int) -> Iterator[int]:
    """Kill a writer again and again; yields the last window that it said it had written."""
    rng = random.Random(seed)
    context = multiprocessing.get_context("fork")
    last = -1
    for _ in range(KILLS):
        here, there = context.Pipe(duplex=False)
        child = context.Process(target=write_on, args=(folder, last + 1, there, max_bytes))
        child.start()
        there.close()
        for _ in range(rng.randint(1, 6)):
            last = here.recv()
        time.sleep(rng.random() * 0.004)  # to kill it in the middle of something
        assert child.pid
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        while here.poll():
            try:
                last = here.recv()
            except EOFError:
                break
        here.close()
        yield last


def files_in(folder: Path) -> set[str]:
    return {f"{each.parent.name}/{each.name}" for each in folder.rglob("*.gz")}


def test_what_was_written_is_there_after_each_kill_and_whole(tmp_path: Path) -> None:
    for last in kills(tmp_path, 1, 64 * _MIB):
        with RingArchive(tmp_path) as archive:  # as a reader finds it, before the next start
            assert archive.warning == ""
            found = archive.between(*ALL)
            for file in found.files:
                archive.load(file)
        numbers = {round((each.start_ns / NS - START_S) / WINDOW_S) for each in found.files}
        assert numbers >= set(range(last + 1))
    with ring(tmp_path, Clock()) as writer:
        assert writer.state().unreadable == 0
    with RingArchive(tmp_path) as archive:
        found = archive.between(*ALL)
        assert {each.path for each in found.files} == files_in(tmp_path)
        assert len(found.runs) == KILLS + 1
        for file in found.files:
            archive.load(file)
    assert [each.name for each in tmp_path.rglob(".*")] == []


def test_a_kill_while_the_oldest_are_removed_leaves_index_and_files_alike(tmp_path: Path) -> None:
    for last in kills(tmp_path, 2, _MIB):
        clock = Clock(START_S + (last + 2) * WINDOW_S)
        with ring(tmp_path, clock, max_bytes=_MIB) as writer, RingArchive(tmp_path) as archive:
            assert {file.path for file in archive.between(*ALL).files} == files_in(tmp_path)
            assert writer.state().bytes < 2 * _MIB
            for each in archive.between(*ALL).files:
                archive.load(each)
