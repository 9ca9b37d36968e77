"""Readers beside a writer; a damaged or missing index; indexes of other versions."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from ebpfprof.errors import RingError
from ebpfprof.ring.folder import INDEX
from ebpfprof.ring.reader import RecordedTime, RingArchive
from tests.unit.ring.made_up import API, NS, START_S, WINDOW_S, Clock, profile_of, ring, window

ALL = 0, 1 << 62
WINDOWS = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ring with windows of two services."""
    found = tmp_path / "ring"
    clock = Clock()
    with ring(found, clock) as writer:
        for number in range(WINDOWS):
            at_s = START_S + number * WINDOW_S
            clock.now_s = at_s + WINDOW_S
            assert writer.write(window(at_s, [profile_of(number + 1, NS, at_s)]))
            assert writer.write(window(at_s, [profile_of(1, NS, at_s)], identity=API, pid=7))
    return found


def read(folder: Path) -> tuple[RecordedTime, str]:
    with RingArchive(folder) as archive:
        time = archive.between(*ALL)
        for file in time.files:
            assert archive.load(file).samples
        return time, archive.warning


def services(time: RecordedTime) -> dict[str, int]:
    """How many files each service has."""
    names = [time.processes[file.process].process.identity.service for file in time.files]
    return {name: names.count(name) for name in names}


def test_a_time_has_the_windows_that_lie_in_it_wholly_or_in_part(folder: Path) -> None:
    at_ns = round((START_S + 90) * NS)
    with RingArchive(folder) as archive:
        found = archive.between(at_ns, at_ns + 60 * NS)
        touching = archive.between(at_ns - 30 * NS, at_ns + 30 * NS)
    assert {file.start_ns / NS - START_S for file in found.files} == {60, 120}
    assert {each.start_ns / NS - START_S for each in touching.files} == {60}


def test_a_folder_without_a_ring_says_how_to_begin(tmp_path: Path) -> None:
    with pytest.raises(RingError, match=r"(?s)does not exist.*\n    sudo ebpfprof agent"):
        RingArchive(tmp_path / "missing")
    with pytest.raises(
        RingError, match=r"(?s)Nothing was recorded in .* yet\..*\n    sudo ebpfprof agent"
    ):
        RingArchive(tmp_path)


def test_readers_see_whole_windows_while_the_writer_writes_and_prunes(tmp_path: Path) -> None:
    """A file may go between the list and its reading, but no list is torn."""
    clock, done = Clock(), threading.Event()
    with ring(tmp_path, clock, max_bytes=1 << 20) as writer:

        def write() -> None:
            for number in range(60):
                at_s = START_S + number * WINDOW_S
                clock.now_s = at_s + WINDOW_S
                mutex = profile_of(1, NS, at_s, bulk_bytes=20_000)
                assert writer.write(window(at_s, [mutex]))
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        seen = 0
        while not done.is_set():
            with RingArchive(tmp_path) as archive:
                found = archive.between(*ALL)
                assert archive.warning == ""
                starts = [file.start_ns for file in found.files]
                assert starts == sorted(starts)
                for each in found.files[-3:]:
                    try:
                        archive.load(each)
                        seen += 1
                    except FileNotFoundError:
                        continue
        thread.join()
    assert seen > 0


@pytest.mark.parametrize("damage", ["missing", "empty", "text", "cut", "zeros"])
def test_a_damaged_index_costs_no_file(folder: Path, damage: str) -> None:
    index = folder / INDEX
    data = index.read_bytes()
    if damage == "missing":
        index.unlink()
    else:
        broken = {
            "empty": b"",
            "text": b"this is no database" * 500,
            "cut": data[: len(data) // 2],
            "zeros": data[:100] + bytes(len(data) - 100),
        }
        index.write_bytes(broken[damage])
    time, warning = read(folder)
    assert "can't be read" in warning
    assert services(time) == {"shop": WINDOWS, "api": WINDOWS}
    assert time.inferred
    with ring(folder, Clock()) as writer:
        assert bool(writer.state().rebuilt) == (damage not in ("missing", "empty"))
    time, warning = read(folder)
    assert warning == ""
    assert services(time) == {"shop": WINDOWS, "api": WINDOWS}


def test_no_change_of_the_index_causes_more_than_a_sentence(folder: Path, tmp_path: Path) -> None:
    """Bytes turn over anywhere: the answer is right, or an error of ours, and the files stay."""
    data = (folder / INDEX).read_bytes()
    rng = random.Random(5)
    answers = 0
    for number in range(40):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(folder, copy)
        changed = bytearray(data)
        for _ in range(rng.randint(1, 40)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        (copy / INDEX).write_bytes(changed)
        with suppress(RingError), RingArchive(copy) as archive:  # a typed error is an answer, too
            answers += len(archive.between(*ALL).files) == 2 * WINDOWS
        assert len(list(copy.rglob("*.gz"))) == 2 * WINDOWS
    assert answers > 10


def test_an_index_that_breaks_while_the_agent_runs_is_rebuilt(tmp_path: Path) -> None:
    clock = Clock()
    with ring(tmp_path, clock) as writer:
        assert writer.write(window())
        with sqlite3.connect(tmp_path / INDEX) as database:
            database.execute("DROP TABLE file")
        assert writer.write(window(START_S + WINDOW_S))
        state = writer.state()
        assert "no such table" in state.rebuilt
        assert (state.files, dict(state.dropped)) == (2, {})


def test_an_index_of_a_newer_version_names_the_way_out(folder: Path) -> None:
    with sqlite3.connect(folder / INDEX) as database:
        database.execute("PRAGMA user_version = 2")
    with pytest.raises(RingError, match="has version 2, and this ebpfprof knows 1: use the newer"):
        RingArchive(folder)
    with pytest.raises(RingError, match="has version 2, and this ebpfprof knows 1: use the newer"):
        ring(folder, Clock())
    assert len(list(folder.rglob("*.gz"))) == 2 * WINDOWS


def test_a_file_without_a_row_is_taken_in_and_a_row_without_a_file_is_dropped(folder: Path) -> None:
    first, second, *_ = sorted(folder.rglob("*shop*.gz"))
    aside = first.read_bytes()
    first.unlink()
    ring(folder, Clock()).close()
    assert services(read(folder)[0]) == {"shop": WINDOWS - 1, "api": WINDOWS}
    first.write_bytes(aside)
    ring(folder, Clock()).close()
    assert services(read(folder)[0]) == {"shop": WINDOWS, "api": WINDOWS}
    second.unlink()
    with RingArchive(folder) as archive, pytest.raises(FileNotFoundError):
        archive.load(next(e for e in archive.between(*ALL).files if second.name in e.path))


def test_strangers_in_the_folder_are_left_alone_and_torn_files_removed(folder: Path) -> None:
    hour = next(each for each in folder.iterdir() if each.is_dir())
    torn = hour / "0000-00.000-shop-1.block.pb.gz"
    torn.write_bytes(bytes(100))
    gos_own = hour / "0000-00.001-shop-1.block.pb.gz"
    gos_own.write_bytes(b"\x1f\x8b\x08" + bytes(50))
    note, link = folder / "notes.txt", hour / "0000-00.002-shop-1.block.pb.gz"
    note.write_text("mine")
    link.symlink_to("/etc/passwd")
    unfinished = hour / ".ebpfprof-0123"
    unfinished.touch()
    with ring(folder, Clock()) as writer:
        assert writer.state().unreadable == 1
    assert (torn.exists(), unfinished.exists()) == (False, False)
    assert (gos_own.exists(), note.exists(), link.is_symlink()) == (True, True, True)
    assert services(read(folder)[0]) == {"shop": WINDOWS, "api": WINDOWS}


@pytest.mark.machine
def test_a_copy_that_can_not_be_written_to_is_read(folder: Path, tmp_path: Path) -> None:
    """As a backup on a file system that is mounted for reading only."""
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        assert services(read(folder)[0]) == {"shop": WINDOWS, "api": WINDOWS}
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
