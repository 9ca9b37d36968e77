"""The writer stays within its bounds, loses nothing uncounted, and trusts no folder of others."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from ebpfprof.console.text import well_formed
from ebpfprof.errors import RingError
from ebpfprof.profile.service import ServiceIdentity
from ebpfprof.ring import database
from ebpfprof.ring.bounds import KEPT_BYTES, Bounds
from ebpfprof.ring.folder import BLOCK, INDEX, path_of
from ebpfprof.ring.reader import RingArchive
from ebpfprof.ring.writer import Ring
from tests.unit.ring.made_up import (
    NS,
    SHOP,
    START_S,
    WINDOW_S,
    Clock,
    goroutines_of,
    profile_of,
    ring,
    window,
)

MIB = 1 << 20
ROOMY: Final = SimpleNamespace(f_bavail=100, f_frsize=MIB)
"""What os.fstatvfs says of a disk with room."""
ALL = 0, 1 << 62


def taken(folder: Path) -> int:
    """The bytes of all files in the folder, as `du` counts them."""
    found = (each.lstat() for each in folder.rglob("*") if not each.is_dir())
    return sum(max(each.st_size, each.st_blocks * 512) for each in found)


def starts(folder: Path) -> list[float]:
    """When the windows that are there begin, Unix time."""
    with RingArchive(folder) as archive:
        return sorted(file.start_ns / NS for file in archive.between(*ALL).files)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of that many bytes."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True)
    try:
        yield folder / "ring"
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _fill_up(path: Path) -> None:
    """Write to a file until the disk is full."""
    with path.open("wb", buffering=0) as file, suppress(OSError):  # the disk is full
        while file.write(bytes(BLOCK)):
            pass


def fill(writer: Ring, clock: Clock, number: int, size: int = 0) -> None:
    """Write that many windows of that many bytes, one a minute; each must be written."""
    for _ in range(number):
        at_s = clock.now_s
        clock.now_s += WINDOW_S
        assert writer.write(window(at_s, [profile_of(1, NS, at_s, bulk_bytes=size)])), (
            writer.state()
        )


def test_files_are_ours_alone(tmp_path: Path) -> None:
    folder = tmp_path / "ring"
    with ring(folder, Clock()) as writer:
        assert writer.write(window())
        found = list(folder.rglob("*"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = [each for each in found if each.is_file()]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert {stat.S_IMODE(each.stat().st_mode) for each in found if each.is_dir()} == {0o700}
    assert [each.name for each in files if each.name.endswith(".gz")] == [
        "1413-20.000-shop-42.block.pb.gz"
    ]


def test_bytes_are_bounded_at_every_moment_and_the_oldest_go_first(tmp_path: Path) -> None:
    clock = Clock()
    with ring(tmp_path, clock, max_bytes=MIB) as writer:
        most = 0
        for _ in range(40):
            fill(writer, clock, 1, size=30_000)
            most = max(most, taken(tmp_path))
        state = writer.state()
        # The log of the index grows by what a window writes, after there was made room for it.
        assert most <= MIB + 16 * BLOCK
        assert state.bytes == taken(tmp_path)
    assert state.pruned["bytes"] > 10
    assert state.written == 40
    assert state.files == 40 - state.pruned["bytes"] > 10
    kept = starts(tmp_path)
    assert kept == [START_S + WINDOW_S * n for n in range(40 - len(kept), 40)]


def test_what_is_too_old_goes_also_without_new_windows(tmp_path: Path) -> None:
    clock = Clock()
    with ring(tmp_path, clock, max_age_s=600) as writer:
        fill(writer, clock, 20)
        assert len(starts(tmp_path)) == 11
        clock.now_s += 300
        writer.beat()
        assert len(starts(tmp_path)) == 6
        assert writer.state().pruned == {"age": 14}
        assert writer.state().oldest_s == clock.now_s - 600 - WINDOW_S


@pytest.mark.machine
def test_it_leaves_the_configured_space_free(tmp_path: Path) -> None:
    clock = Clock()
    with (
        small_disk(tmp_path, 8 * MIB) as folder,
        ring(folder, clock, keep_free_bytes=5 * MIB) as writer,
    ):
        for _ in range(40):
            fill(writer, clock, 1, size=100_000)
            free = os.statvfs(folder)
            assert free.f_bavail * free.f_frsize > 5 * MIB - 50 * BLOCK
        assert writer.state().pruned["free_space"] > 5


@pytest.mark.machine
def test_a_full_disk_costs_windows_but_nothing_that_was_written(tmp_path: Path) -> None:
    """Others fill the disk: the newest window replaces the oldest; without any it is dropped."""
    clock = Clock()
    with small_disk(tmp_path, 8 * MIB) as folder, ring(folder, clock) as writer:
        fill(writer, clock, 20, size=30_000)
        filler = tmp_path / "filler"
        _fill_up(filler)
        before = starts(folder)
        fill(writer, clock, 5, size=30_000)
        after = starts(folder)
        assert after[-5:] == [clock.now_s - WINDOW_S * n for n in (5, 4, 3, 2, 1)]
        assert len(before) - 8 <= len(after) <= len(before)
        at_s = clock.now_s
        profiles = [goroutines_of(1, at_s), profile_of(1, NS, at_s, bulk_bytes=900_000)]
        assert not writer.write(window(at_s, profiles))
        state = writer.state()
        assert state.dropped == {"no_space": 1}
        assert "no space" in state.last_error.lower()
        assert starts(folder) == after
        filler.unlink()
        fill(writer, clock, 1)
        with RingArchive(folder) as archive:
            for file in archive.between(*ALL).files:
                assert archive.load(file).samples


@pytest.mark.machine
def test_a_window_of_which_one_file_does_not_fit_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up while the window is written."""
    with small_disk(tmp_path, 8 * MIB) as folder, ring(folder, Clock()) as writer:
        (tmp_path / "filler").write_bytes(bytes(7 * MIB))
        monkeypatch.setattr(os, "fstatvfs", lambda _: ROOMY)  # as it was before
        profiles = [goroutines_of(1, START_S), profile_of(1, NS, START_S, bulk_bytes=1_500_000)]
        assert not writer.write(window(START_S, profiles))
        assert writer.state().dropped == {"no_space": 1}
        assert "No space left" in writer.state().last_error
        assert list(folder.rglob("*.gz")) == []


def test_a_window_larger_than_the_ring_is_dropped_and_nothing_else(tmp_path: Path) -> None:
    clock = Clock()
    with ring(tmp_path, clock, max_bytes=MIB) as writer:
        fill(writer, clock, 3)
        at_s = clock.now_s
        assert not writer.write(window(at_s, [profile_of(1, NS, at_s, bulk_bytes=600_000)]))
        assert writer.state().dropped == {"too_large": 1}
        assert len(starts(tmp_path)) == 3


def test_a_window_that_no_file_can_hold_is_dropped(tmp_path: Path) -> None:
    with ring(tmp_path, Clock()) as writer:
        nameless = replace(window(), identity=ServiceIdentity(""))
        assert not writer.write(nameless)
        assert writer.state().dropped == {"invalid": 1}
        assert writer.write(window())


@pytest.mark.parametrize(
    ("used", "free", "room"),
    [
        (0, 100 * MIB, 64 * MIB),
        (40 * MIB, 20 * MIB, 50 * MIB),
        (40 * MIB, 0, 30 * MIB),
        (20 * MIB, 0, KEPT_BYTES),
        (10 * MIB, 0, 10 * MIB),
        (10 * MIB, 12 * MIB, 12 * MIB),
        (0, 0, 0),
    ],
)
def test_the_ring_makes_room_for_others_but_keeps_a_rest(used: int, free: int, room: int) -> None:
    bounds = Bounds(64 * MIB, 60, keep_free_bytes=10 * MIB)
    assert bounds.room(used, free) == room


@pytest.mark.parametrize("bounds", [{"max_bytes": 1000}, {"max_age_s": 0}, {"keep_free_bytes": -1}])
def test_bounds_that_make_no_sense_are_refused(tmp_path: Path, bounds: dict[str, float]) -> None:
    with pytest.raises(RingError):
        ring(tmp_path, Clock(), **bounds)


def test_two_windows_of_the_same_moment_are_both_kept(tmp_path: Path) -> None:
    with ring(tmp_path, Clock()) as writer:
        assert writer.write(window())
        assert writer.write(window())
    assert starts(tmp_path) == [START_S, START_S]


def test_a_name_from_the_target_stays_in_the_folder() -> None:
    path = path_of(round(START_S * NS), "../../etc/pass wd\n\x1b[31m\u202e", 7, "block")
    assert path == "2026-09-21T14Z/1413-20.000-_.._etc_pass_wd___31m_-7.block.pb.gz"
    assert path_of(0, "...", 7, "cpu") == "1970-01-01T00Z/0000-00.000-service-7.cpu.pb.gz"


def test_a_hostile_service_name_is_stored_and_found(tmp_path: Path) -> None:
    odd = ServiceIdentity("../\udcff\x00 '; DROP TABLE file; --", labels={"a": "\u202e"})
    with ring(tmp_path / "ring", Clock()) as writer:
        assert writer.write(window(identity=odd)), writer.state()
    with RingArchive(tmp_path / "ring") as archive:
        (found,) = archive.between(*ALL).processes.values()
    assert found.process.identity == replace(odd, service=well_formed(odd.service))
    assert [each.name for each in tmp_path.iterdir()] == ["ring"]


def test_there_is_one_writer(tmp_path: Path) -> None:
    with (
        ring(tmp_path, Clock()),
        pytest.raises(RingError, match=r"Another ebpfprof writes to .*: stop it, or choose"),
    ):
        ring(tmp_path, Clock())
    ring(tmp_path, Clock()).close()


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    with pytest.raises(RingError, match=r"Others can write to .*: chmod go-w it"):
        ring(tmp_path, Clock())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.machine
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(RingError, match="belongs to another user"):
        ring(tmp_path, Clock())


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(RingError, match="is a symbolic link or not a folder"):
        ring(tmp_path / "link", Clock())
    (tmp_path / "file").touch()
    with pytest.raises(RingError, match="is a symbolic link or not a folder"):
        ring(tmp_path / "file", Clock())


def test_a_folder_in_one_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(RingError, match="create its parent folder first"):
        ring(tmp_path / "missing" / "ring", Clock())


@pytest.mark.parametrize("what", ["link", "hard", "folder", "pipe"])
def test_an_index_that_is_not_our_own_file_is_refused(tmp_path: Path, what: str) -> None:
    other, folder = tmp_path / "shadow", tmp_path / "ring"
    other.write_text("secret")
    folder.mkdir(mode=0o700)
    index = folder / INDEX
    if what == "link":
        index.symlink_to(other)
    elif what == "hard":
        index.hardlink_to(other)
    elif what == "pipe":
        os.mkfifo(index, 0o600)
    else:
        index.mkdir()
    with pytest.raises(RingError, match="is not a file that ebpfprof made: remove it"):
        ring(folder, Clock())
    assert other.read_text() == "secret"


def test_a_link_in_place_of_an_hour_is_not_followed(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "ring"
    elsewhere.mkdir()
    with ring(folder, Clock()) as writer:
        (folder / "2026-09-21T14Z").symlink_to(elsewhere)
        assert not writer.write(window())
        assert writer.state().dropped == {"io_error": 1}
    assert list(elsewhere.iterdir()) == []


def test_a_profile_that_can_not_be_encoded_costs_one_window(tmp_path: Path) -> None:
    bad = profile_of(1, NS, START_S)
    bad = replace(bad, samples=(replace(bad.samples[0], variance=-1.0),))
    with ring(tmp_path, Clock()) as writer:
        assert not writer.write(window(START_S, [bad]))
        assert writer.state().dropped == {"invalid": 1}
        assert writer.state().last_error == "ValueError: math domain error"
        assert writer.write(window())


def test_an_index_that_another_program_locks_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    clock = Clock()
    with ring(tmp_path, clock) as writer:
        fill(writer, clock, 1)
        with closing(sqlite3.connect(tmp_path / INDEX)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert not writer.write(window(clock.now_s))
            other.rollback()
        state = writer.state()
        assert (state.rebuilt, state.dropped) == ("", {"io_error": 1})
        assert state.last_error == "database is locked"
        assert len(list(tmp_path.rglob("*.gz"))) == 1
        fill(writer, clock, 1)


def test_a_full_ring_with_many_files_is_written_to_without_reading_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many files as there may be make no window expensive."""
    clock = Clock()
    statements: set[str] = set()
    connect = sqlite3.connect

    def watched(*args: Any, **how: Any) -> sqlite3.Connection:  # noqa: ANN401 - as sqlite3.connect
        connection: sqlite3.Connection = connect(*args, **how)
        connection.set_trace_callback(statements.add)
        return connection

    monkeypatch.setattr(sqlite3, "connect", watched)
    with ring(tmp_path, clock, max_bytes=MIB) as writer:
        fill(writer, clock, 20, size=60_000)
        statements.clear()
        fill(writer, clock, 2, size=60_000)
        assert writer.state().pruned["bytes"] > 5
    assert any("DELETE FROM file" in sql for sql in statements)
    with closing(connect(tmp_path / INDEX)) as index:
        for sql in statements:
            plan = index.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
            steps = [row[3] for row in plan]
            assert not [step for step in steps if step == "SCAN file"], (sql, steps)


def test_what_was_not_recorded_is_forgotten_also_where_there_are_not_files(tmp_path: Path) -> None:
    clock = Clock()
    with ring(tmp_path, clock, max_age_s=600) as writer:
        for minute in range(3):
            at_s = clock.now_s
            clock.now_s += WINDOW_S
            writer.note_unrecorded(
                SHOP, 100 + minute, 7, "shop", at_s, clock.now_s, "its version of Go is too old"
            )
        clock.now_s += 520
        writer.beat()
        with RingArchive(tmp_path) as archive:
            found = archive.between(*ALL)
            assert len(found.processes) == len(found.unrecorded) == 2
        clock.now_s += 600
        writer.beat()
        with RingArchive(tmp_path) as archive:
            found = archive.between(*ALL)
            assert len(found.processes) == len(found.unrecorded) == 0
            assert len(found.runs) == 1
