"""Corners of the writer: clocks that jump, names that are long, folders and files that are odd."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ebpfprof.profile.service import ServiceIdentity
from ebpfprof.ring import index
from ebpfprof.ring import writer as module
from ebpfprof.ring.folder import RingFolder
from ebpfprof.ring.reader import RecordedTime, RingArchive
from ebpfprof.ring.writer import Ring
from tests.unit.ring.made_up import (
    API,
    NS,
    START_S,
    WINDOW_S,
    Clock,
    boottime_of,
    profile_of,
    ring,
    window,
)
from tests.unit.ring.test_writer import MIB, ROOMY, fill, small_disk, taken

ALL = 0, 1 << 62


def found(folder: Path) -> RecordedTime:
    with RingArchive(folder) as archive:
        return archive.between(*ALL)


def hours(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.is_dir())


def test_what_was_there_is_counted_when_the_ring_is_opened_again(tmp_path: Path) -> None:
    clock = Clock()
    with ring(tmp_path, clock) as writer:
        fill(writer, clock, 3)
    with ring(tmp_path, clock) as writer:
        assert writer.state().files == 3
        fill(writer, clock, 1)
        assert writer.state().files == 4
        assert writer.state().bytes == taken(tmp_path)


def test_a_window_of_a_clock_that_was_set_back_is_kept(tmp_path: Path) -> None:
    with ring(tmp_path, Clock()) as writer:
        assert writer.write(window(length_s=-5.0))
    (file,) = found(tmp_path).files
    assert file.start_ns == file.end_ns == START_S * NS


def test_a_process_began_before_its_first_window(tmp_path: Path) -> None:
    with ring(tmp_path, Clock()) as writer:
        assert writer.write(window(began_s=START_S + 100))
    (process,) = found(tmp_path).processes.values()
    assert process.process.began_ns == START_S * NS


def test_a_reason_in_odd_letters_is_kept(tmp_path: Path) -> None:
    with ring(tmp_path, Clock()) as writer:
        writer.note_unrecorded(API, 7, 9, "\udcff", START_S, START_S + 60, "why \udcff")
    (note,) = found(tmp_path).unrecorded
    assert note.reason.startswith("why ")


def test_until_when_it_ran_is_noted_at_the_end(tmp_path: Path) -> None:
    clock = Clock()
    with ring(tmp_path, clock):
        clock.now_s += 3
    assert list(found(tmp_path).runs) == [(START_S * NS, (START_S + 3) * NS)]


def test_a_long_name_is_cut_in_the_file_only(tmp_path: Path) -> None:
    long = ServiceIdentity("s" * 300)
    with ring(tmp_path, Clock()) as writer:
        assert writer.write(window(identity=long))
    with ring(tmp_path, Clock()) as writer:
        assert writer.state().files == 1
    (process,) = found(tmp_path).processes.values()
    assert process.process.identity == long


def test_hours_without_files_go(tmp_path: Path) -> None:
    (tmp_path / "2020-01-01T00Z").mkdir()
    clock = Clock()
    with ring(tmp_path, clock, max_age_s=600) as writer:
        assert hours(tmp_path) == []
        fill(writer, clock, 1)
        assert len(hours(tmp_path)) == 1
        clock.now_s += 3600
        writer.beat()
        assert hours(tmp_path) == []


def test_no_path_leads_out_of_the_folder(tmp_path: Path) -> None:
    name = "1413-20.000-shop-42.block.pb.gz"
    for place in ("out", "in/2026-09-21T14Z"):
        (tmp_path / place).mkdir(parents=True, mode=0o700)
        (tmp_path / place / name).write_text("secret")
    (tmp_path / "in/2026-09-21T14Z/note").write_text("secret")
    folder = RingFolder.open(tmp_path / "in")
    for path in (f"../out/{name}", "2026-09-21T14Z/note", f"2026-09-21T14Z/../../out/{name}"):
        with pytest.raises(FileNotFoundError):
            folder.read(path)
        folder.remove(path)
    assert folder.read(f"2026-09-21T14Z/{name}") == b"secret"
    folder.close()
    assert len([each for each in tmp_path.rglob("*") if each.is_file()]) == 3


def test_a_file_that_no_reader_takes_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILE", 100)
    with ring(tmp_path, Clock()) as writer:
        assert not writer.write(window())
        assert writer.state().dropped == {"too_large": 1}


@pytest.mark.machine
def test_a_disk_that_is_full_against_what_it_says_makes_the_oldest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with small_disk(tmp_path, 8 * MIB) as folder, ring(folder, clock) as writer:
        fill(writer, clock, 10, size=30_000)
        free = RingFolder.free_bytes
        folder_ = RingFolder.open(folder)
        (tmp_path / "filler").write_bytes(bytes(free(folder_) - 20_000))
        folder_.close()
        monkeypatch.setattr(os, "fstatvfs", lambda _: ROOMY)
        at_s = clock.now_s
        assert writer.write(window(at_s, [profile_of(1, NS, at_s, bulk_bytes=50_000)]))
        state = writer.state()
        assert (state.dropped, state.pruned) == ({}, {"free_space": 2})
        assert state.oldest_s == START_S + 2 * WINDOW_S


def noted(writer: Ring, first: int, last: int, reason: str, pid: int = 7) -> None:
    """Note that the API was not recorded, by seconds from the begin on."""
    writer.note_unrecorded(API, pid, 9, "api", START_S + first, START_S + last, reason)


def spans(time: RecordedTime) -> list[tuple[int, int, str]]:
    return [
        (each.begun_ns // NS - round(START_S), each.until_ns // NS - round(START_S), each.reason)
        for each in time.unrecorded
    ]


def test_a_time_that_continues_for_the_same_reason_is_one(tmp_path: Path) -> None:
    with ring(tmp_path, Clock()) as writer:
        noted(writer, 0, 60, "budget")
        noted(writer, 0, 60, "budget", pid=8)
        noted(writer, 60, 120, "budget")
        noted(writer, 120, 180, "places")
        noted(writer, 300, 360, "places")
    assert spans(found(tmp_path)) == [
        (0, 120, "budget"),
        (0, 60, "budget"),
        (120, 180, "places"),
        (300, 360, "places"),
    ]
    with RingArchive(tmp_path) as archive:
        begin = round(START_S) * NS
        part = archive.between(begin + 60 * NS, begin + 120 * NS)
    assert spans(part) == [(0, 120, "budget")]


def test_the_notes_are_bounded_the_oldest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MAX_UNRECORDED", 3)
    with ring(tmp_path, Clock()) as writer:
        for number in range(5):
            noted(writer, 100 * number, 100 * number + 50, "budget")
    assert [begin for begin, *_ in spans(found(tmp_path))] == [200, 300, 400]


def test_when_an_agent_ran_is_forgotten_with_the_files_of_that_time(tmp_path: Path) -> None:
    clock = Clock()
    with ring(tmp_path, clock, max_age_s=600):
        pass
    clock.now_s += 500
    with ring(tmp_path, clock, max_age_s=600):
        assert len(found(tmp_path).runs) == 2
    clock.now_s += 500
    with ring(tmp_path, clock, max_age_s=600) as writer:
        writer.beat()
        assert len(found(tmp_path).runs) == 2


def test_the_end_of_a_process_is_not_that_of_another_with_its_pid(tmp_path: Path) -> None:
    with ring(tmp_path, Clock()) as writer:
        for began_s in (START_S - 100, START_S - 50):
            assert writer.write(window(began_s=began_s))
        writer.note_ended(42, boottime_of(START_S - 100), START_S + 70)
    ended = [process.ended_ns for process in found(tmp_path).processes.values()]
    assert ended == [(START_S + 70) * NS, None]
