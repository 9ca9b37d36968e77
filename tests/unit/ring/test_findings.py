"""What was found wrong with processes: noted, grown, bounded and forgotten."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.profile.service import ServiceFinding, ServiceFindings
from ebpfprof.ring import index
from ebpfprof.ring.folder import INDEX
from ebpfprof.ring.index import IndexedFinding
from ebpfprof.ring.reader import RingArchive
from tests.unit.ring.made_up import NS, SHOP, START_S, WINDOW_S, Clock, boottime_of, ring, window

HOT = ServiceFinding(
    kind="hot_lock",
    level="slow",
    title="Lock main.mu: 54 % of the time of requests.",
    subject="Lock main.mu",
    since_s=START_S,
    lines=("Its holder: waits for 10.0.0.7:5432.",),
    share=0.54,
    error=0.02,
    place="main.get (main.go:7)",
)
ALL = 0, 1 << 62
BEGAN = boottime_of(START_S - 3600)


def findings(time_s: float, *found: ServiceFinding, pid: int = 42) -> ServiceFindings:
    return ServiceFindings(SHOP, pid, BEGAN, "shop", time_s, found)


def noted(folder: Path, span: tuple[int, int] = ALL) -> list[IndexedFinding]:
    with RingArchive(folder) as archive:
        return list(archive.between(*span).findings)


def test_a_finding_that_continues_is_one_with_its_last_words(tmp_path: Path) -> None:
    later = replace(HOT, title="Lock main.mu: 61 % of the time of requests.", share=0.61)
    other = replace(HOT, subject="Lock main.other", title="Lock main.other: 20 %.")
    with ring(tmp_path / "ring", Clock()) as writer:
        assert writer.write(window())
        writer.note_findings(findings(START_S + 10, HOT))
        writer.note_findings(findings(START_S + 20))
        writer.note_findings(findings(START_S + 610, later, other))
        # It was gone, and came back.
        writer.note_findings(findings(START_S + 1810, replace(HOT, since_s=START_S + 1800)))
    found = noted(tmp_path / "ring")
    spans = [(one.begun_ns / NS - START_S, one.until_ns / NS - START_S) for one in found]
    assert spans == [(0, 610), (0, 610), (1800, 1810)]
    assert [one.finding for one in found[:2]] == [later, other]
    with RingArchive(tmp_path / "ring") as archive:
        (process,) = archive.between(*ALL).processes.values()
    assert {one.process for one in found} == {process.process.key}
    at_ns = round((START_S + 1000) * NS)
    assert noted(tmp_path / "ring", (at_ns, at_ns + NS)) == []
    at_ns = round((START_S + 300) * NS)
    assert len(noted(tmp_path / "ring", (at_ns, at_ns + NS))) == 2


def test_findings_are_bounded_and_forgotten_with_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MAX_FINDINGS", 3)
    clock = Clock()
    with ring(tmp_path / "ring", clock, max_age_s=3600) as writer:
        assert writer.write(window())
        for number in range(5):
            writer.note_findings(findings(START_S + 10, replace(HOT, subject=str(number))))
        assert [one.finding.subject for one in noted(tmp_path / "ring")] == ["2", "3", "4"]
        clock.now_s = START_S + 3600 + 2 * WINDOW_S
        assert writer.write(window(clock.now_s - WINDOW_S))
        assert noted(tmp_path / "ring") == []


def test_long_and_odd_texts_are_kept_in_part(tmp_path: Path) -> None:
    odd = replace(HOT, title="\udcff" + "x" * 10_000, lines=("\udc80",) * 100, subject="y" * 10_000)
    with ring(tmp_path / "ring", Clock()) as writer:
        assert writer.write(window())
        writer.note_findings(findings(START_S + 10, odd))
    (found,) = noted(tmp_path / "ring")
    assert found.finding.title.startswith("\\udcffxxx")
    assert len(json.dumps(found.finding.title)) < 600
    assert found.finding.lines == ("\\udc80",) * 4


def _as_before(folder: Path) -> None:
    """An index as earlier releases wrote it, without the table."""
    with closing(sqlite3.connect(folder / INDEX)) as database:
        database.execute("DROP TABLE finding")
        database.commit()


def test_an_index_of_an_earlier_release_is_read_and_continued(tmp_path: Path) -> None:
    with ring(tmp_path / "ring", Clock()) as writer:
        assert writer.write(window())
    _as_before(tmp_path / "ring")
    with RingArchive(tmp_path / "ring") as archive:
        recorded = archive.between(*ALL)
        assert archive.warning == ""
    assert len(recorded.files) == 1
    assert recorded.findings == []
    with ring(tmp_path / "ring", Clock()) as writer:
        assert writer.state().rebuilt == ""
        writer.note_findings(findings(START_S + 10, HOT))
    assert [one.finding for one in noted(tmp_path / "ring")] == [HOT]


def test_a_value_that_is_no_finding_is_reported_as_damage(tmp_path: Path) -> None:
    with ring(tmp_path / "ring", Clock()) as writer:
        assert writer.write(window())
        writer.note_findings(findings(START_S + 10, HOT))
    with closing(sqlite3.connect(tmp_path / "ring" / INDEX)) as database:
        database.execute("UPDATE finding SET finding = '{\"kind\": 3}'")
        database.commit()
    with (
        RingArchive(tmp_path / "ring") as archive,
        pytest.raises(Exception, match="is damaged: a value is not the expected JSON"),
    ):
        archive.between(*ALL)
