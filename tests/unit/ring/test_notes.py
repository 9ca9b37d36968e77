"""Notes that the index can't take: they are counted, and the caller learns of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ebpfprof.ring import database
from ebpfprof.ring.folder import INDEX
from ebpfprof.ring.writer import Ring
from tests.unit.ring.made_up import SHOP, START_S, Clock, boottime_of, ring
from tests.unit.ring.test_findings import HOT, findings

BEGAN = boottime_of(START_S - 3600)


def note_end(writer: Ring) -> bool:
    return writer.note_ended(42, BEGAN, START_S)


def note_findings(writer: Ring) -> bool:
    return writer.note_findings(findings(START_S + 10, HOT))


def note_unrecorded(writer: Ring) -> bool:
    return writer.note_unrecorded(SHOP, 42, BEGAN, "shop", START_S, START_S + 60, "too many")


@pytest.mark.parametrize("note", [note_end, note_findings, note_unrecorded])
def test_a_note_that_is_not_written_is_counted(
    note: Callable[[Ring], bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    with ring(tmp_path, Clock()) as writer:
        assert note(writer)
        assert writer.state().unnoted == 0
        with closing(sqlite3.connect(tmp_path / INDEX)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert not note(writer)
            other.rollback()
        state = writer.state()
        assert (state.unnoted, state.dropped) == (1, {})
        assert state.last_error == "database is locked"
