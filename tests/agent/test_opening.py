"""Sinks as the settings make them, and what the ring and a folder get."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import time
from typing import cast

import pytest

from ebpfprof.agent.settings import RingSettings, Settings, SinkSettings
from ebpfprof.agent.sinks.folder import FolderDelivery
from ebpfprof.agent.sinks.local_ring import RingDelivery
from ebpfprof.agent.sinks.opening import Sinks, _is_successor
from ebpfprof.agent.sinks.ring_backlog import RingBacklog
from ebpfprof.agent.sinks.sink import Refused
from ebpfprof.agent.sinks.waiting import InRing, QueueBounds
from ebpfprof.errors import RingError
from ebpfprof.profile.service import ProcessEnd, ServiceIdentity, ServiceWindow
from ebpfprof.ring import database
from ebpfprof.ring.bounds import Bounds
from ebpfprof.ring.folder import INDEX
from ebpfprof.ring.reader import RecordedTime, RingArchive
from ebpfprof.ring.writer import Ring
from tests.agent.test_sinks import lines, window, with_sinks
from tests.backends.ports import free_port
from tests.backends.windows import made_up, sink, window_of

ALL = 0, 1 << 62


@pytest.mark.parametrize("is_possible", [True, False])
def test_what_comes_while_a_sink_is_opened_waits_for_it(tmp_path: Path, is_possible: bool) -> None:
    sinks = Sinks(pytest.fail)
    sinks.use(with_sinks(tmp_path, "a", "gone"))

    class SlowFolder:
        """A path that is asked for when its sink is opened: then a window comes."""

        def __fspath__(self) -> str:
            sinks.give(window(7))
            if not is_possible:
                raise RingError("It can't be opened.")
            return str(tmp_path / "b")

    wanted = with_sinks(tmp_path, "a", "b")
    first, second = wanted.sinks
    wanted = replace(wanted, sinks=(first, replace(second, path=cast("str", SlowFolder()))))
    if is_possible:
        sinks.use(wanted)
    else:
        with pytest.raises(RingError):
            sinks.use(wanted)
    sinks.close()
    assert lines(tmp_path / "a") == [1007.0]
    assert lines(tmp_path / ("b" if is_possible else "gone")) == [1007.0]


def test_a_sink_has_the_bounds_of_its_settings() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    one = sink("otlp", url, queue_bytes=1 << 21, queue_age=77.0)
    settings = Settings(
        ring=RingSettings(enabled=False), sinks=(one, sink("parca", url)), max_node_overhead=8.0
    )
    sinks = Sinks(lambda _: None)
    sinks.use(settings)
    first = sinks.all[0]
    assert first._queue._bounds == QueueBounds(1 << 21, 77.0)
    share = 0.08 * (os.cpu_count() or 1) / 4 / 2  # a quarter of the budget for both
    assert first._catch_up == pytest.approx(share)
    sinks.give(ProcessEnd(7, 9, 1.0))
    assert first.counters().waiting == 0  # backends get windows only
    sinks.close()


def test_only_the_same_backend_continues_with_what_waits() -> None:
    url = "http://a"
    one = sink("otlp", url)
    folder = SinkSettings("folder", "x", "/a")
    assert _is_successor(replace(one, url="http://b"), one)
    assert not _is_successor(replace(one, name="other"), one)
    assert not _is_successor(replace(one, type="parca"), one)
    assert not _is_successor(replace(folder, path="/b"), folder)
    assert not _is_successor(one, RingSettings())


def test_a_folder_has_files_of_harmless_names(tmp_path: Path) -> None:
    odd = replace(window(0), identity=ServiceIdentity("../../ä\n" + "x" * 300), start_s=1.2345)
    FolderDelivery(str(tmp_path / "out")).deliver(odd)
    name = ".._..___" + "x" * 56
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        f"{name}-7-1234.block.pb.gz",
        "index.jsonl",
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def archived(folder: Path) -> RecordedTime:
    with RingArchive(folder) as archive:
        return archive.between(*ALL)


def test_the_ring_notes_ends_and_that_the_agent_runs(tmp_path: Path) -> None:
    delivery = RingDelivery(RingSettings(path=str(tmp_path), keep_free=0, max_age=1e10))
    begun_s = time()
    delivery.deliver(window(0))
    delivery.deliver(ProcessEnd(7, 9, 1234.5))
    with pytest.raises(Refused, match="name is out of range") as caught:
        delivery.deliver(replace(window(1), identity=ServiceIdentity("")))
    assert caught.value.reason == "not_written"
    (process,) = archived(tmp_path).processes.values()
    assert process.ended_ns == 1234.5e9
    ((_, before_ns),) = archived(tmp_path).runs
    delivery.beat()
    ((_, after_ns),) = archived(tmp_path).runs
    assert begun_s * 1e9 < before_ns < after_ns
    delivery.close()


def test_a_note_that_the_ring_can_not_take_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    delivery = RingDelivery(RingSettings(path=str(tmp_path), keep_free=0, max_age=1e10))
    with closing(sqlite3.connect(tmp_path / INDEX)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Refused, match="database is locked"):
            delivery.deliver(ProcessEnd(7, 9, 1234.5))
        other.rollback()
    delivery.close()


def in_ring(window: ServiceWindow) -> InRing:
    return InRing(replace(window, profiles={}), frozenset(window.profiles))


def test_a_folder_that_was_replaced_is_opened_again(tmp_path: Path) -> None:
    backlog = RingBacklog(lambda: tmp_path / "ring")
    for number in range(2):
        each = window_of(1_790_000_000.0, pid=number + 1)
        with Ring(tmp_path / "ring", max_age_s=1e9, keep_free_bytes=0) as ring:
            assert ring.write(each)
        assert backlog.window(in_ring(each)).profiles.keys() == each.profiles.keys()
        (tmp_path / "ring").rename(tmp_path / f"old{number}")
    backlog.close()


def test_a_window_that_can_not_be_read_back_is_not_tried_for_ever(tmp_path: Path) -> None:
    each = window_of(1_790_000_000.0)
    with Ring(tmp_path, max_age_s=1e9, keep_free_bytes=0) as ring:
        assert ring.write(each)
    for path in tmp_path.rglob("*.gz"):
        path.unlink()
        path.mkdir()
    backlog = RingBacklog(lambda: tmp_path)
    with pytest.raises(Refused, match=r"can't be read back .*Is a directory"):
        backlog.window(in_ring(each))
    backlog.close()


def test_a_window_is_read_back_with_its_own_profiles(tmp_path: Path) -> None:
    """Beside that of another process, and one of the same process that began before."""
    start_s = 1_790_000_000.0
    ours, other = (
        window_of(start_s),
        window_of(start_s, {"block": made_up("block", 5.0)}, pid=99_999),
    )
    before = window_of(start_s - 30, {"mutex": made_up("mutex", 7.0)})
    with Ring(tmp_path, max_age_s=1e9, keep_free_bytes=0) as ring:
        for each in (ours, other, before):
            assert ring.write(each)
    backlog = RingBacklog(lambda: tmp_path)
    found = backlog.window(InRing(replace(ours, profiles={}), frozenset({"block", "mutex"})))
    assert {kind: each.time_ns for kind, each in found.profiles.items()} == {
        "block": round(start_s * 1e9)
    }
    backlog.close()


def test_the_ring_has_the_bounds_of_its_settings(tmp_path: Path) -> None:
    settings = RingSettings(path=str(tmp_path), max_bytes=1 << 25, max_age=777.0, keep_free=5)
    delivery = RingDelivery(settings)
    assert delivery._ring._store._bounds == Bounds(1 << 25, 777.0, 5)
    delivery.close()
