"""The index of the ring: which files there are, and when the agent ran; in SQLite.

It is a copy of what the files say of themselves, so that a question about ten minutes does not read
a week of files: it can be rebuilt from them. Only when the agent ran, and why a process was not
recorded, stands nowhere else. Readers may read while the one writer writes (write-ahead log).
Times are nanoseconds of Unix time. Methods raise what those of RingDatabase do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ebpfprof.errors import InvalidProfile
from ebpfprof.profile.service import ServiceFinding, ServiceIdentity
from ebpfprof.ring.contents import RingFacts, RingProcess
from ebpfprof.ring.database import IndexDamagedError, RingDatabase
from ebpfprof.ring.typed import from_plain, to_plain

_PROCESS: Final = "id, boot, pid, start_ns, began_ns, ended_ns, command, go_version, identity"
_FILE: Final = "path, process, kind, start_ns, end_ns, bytes, is_estimate, totals"
_FILE_TYPES: Final = tuple[str, int, str, int, int, int, int]
_PROCESS_TYPES: Final = tuple[int, str, int, int, int, int | None, str, str, str]
_UNRECORDED_TYPES: Final = tuple[int, int, int, str]
_FINDING_TYPES: Final = tuple[str, int, int, int, int]
MAX_UNRECORDED: Final = 100_000
MAX_FINDINGS: Final = 10_000
_SPANS: Final = "SELECT start_ns, end_ns FROM file"
_RUN_TYPES: Final = tuple[int, int]


@dataclass(frozen=True, slots=True)
class IndexedProcess:
    """A process by its number in the index. `ended_ns` is None unless its end was noticed."""

    number: int
    process: RingProcess
    ended_ns: int | None


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file: a profile of the process with this number. `bytes` is what the file takes."""

    path: str
    process: int
    kind: str
    start_ns: int
    end_ns: int
    bytes: int
    is_estimate: bool
    totals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """A time in which a process was not recorded, and why."""

    process: int
    begun_ns: int
    until_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class IndexedFinding:
    """A finding about the process with this key, from when until when it was found."""

    process: tuple[str, int, int]
    begun_ns: int
    until_ns: int
    finding: ServiceFinding


class IndexChanges:
    """What the one writer writes, within its transactions."""

    def __init__(self, database: RingDatabase) -> None:
        self._database = database

    def add_file(self, path: str, facts: RingFacts, taken: int) -> None:
        """Add a file of that many bytes, and its process."""
        number = self.number_of(facts.process)
        row = (
            path,
            number,
            facts.kind,
            facts.start_ns,
            facts.end_ns,
            taken,
            int(facts.is_estimate),
        )
        self._database.run(
            f"INSERT OR REPLACE INTO file ({_FILE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, json.dumps(facts.totals)),
        )

    def number_of(self, process: RingProcess) -> int:
        """The number of a process, which is added if it is new."""
        identity = json.dumps(to_plain(process.identity), sort_keys=True)
        key = (process.boot, process.pid, process.start_ns, identity, process.command)
        self._database.run(
            "INSERT OR IGNORE INTO process (boot, pid, start_ns, identity, command, began_ns, "
            "go_version) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*key, process.began_ns, process.go_version),
        )
        (number,) = self._database.row(
            "SELECT id FROM process WHERE (boot, pid, start_ns, identity, command) "
            "= (?, ?, ?, ?, ?)",
            key,
        )
        return int(number)

    def note_ended(self, key: tuple[str, int, int], ended_ns: int) -> None:
        """Note when the process with this key ended, under each name that it had."""
        self._database.run(
            "UPDATE process SET ended_ns = ? WHERE (boot, pid, start_ns) = (?, ?, ?)",
            (ended_ns, *key),
        )

    def note_unrecorded(self, process: RingProcess, begun_ns: int, until_ns: int, why: str) -> None:
        """Note a time in which a process was not recorded; one that continues grows."""
        number = self.number_of(process)
        grown = self._database.run(
            "UPDATE unrecorded SET until_ns = max(until_ns, ?) WHERE id = "
            "(SELECT max(id) FROM unrecorded WHERE process = ?) AND reason = ? AND until_ns >= ?",
            (until_ns, number, why, begun_ns),
        )
        if not grown:
            self._database.run(
                "INSERT INTO unrecorded (process, begun_ns, until_ns, reason) VALUES (?, ?, ?, ?)",
                (number, begun_ns, until_ns, why),
            )
            self._database.run(
                "DELETE FROM unrecorded WHERE id <= (SELECT max(id) FROM unrecorded) - ?",
                (MAX_UNRECORDED,),
            )

    def note_finding(
        self, key: tuple[str, int, int], begun_ns: int, until_ns: int, finding: ServiceFinding
    ) -> None:
        """Note a finding about the process with this key; one that continues grows."""
        text = json.dumps(to_plain(finding))
        grown = self._database.run(
            "UPDATE finding SET until_ns = max(until_ns, ?), finding = ? WHERE "
            "(boot, pid, start_ns, kind, subject, begun_ns) = (?, ?, ?, ?, ?, ?)",
            (until_ns, text, *key, *finding.key, begun_ns),
        )
        if not grown:
            self._database.run(
                "INSERT INTO finding (boot, pid, start_ns, kind, subject, begun_ns, until_ns, "
                "finding) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*key, *finding.key, begun_ns, until_ns, text),
            )
            self._database.run(
                "DELETE FROM finding WHERE id <= (SELECT max(id) FROM finding) - ?",
                (MAX_FINDINGS,),
            )

    def begin_run(self, now_ns: int) -> int:
        """Note that the agent begins to run; the number of this run."""
        self._database.run("INSERT INTO run (begun_ns, until_ns) VALUES (?, ?)", (now_ns, now_ns))
        (number,) = self._database.row("SELECT max(id) FROM run")
        return int(number)

    def add_run(self, begun_ns: int, until_ns: int) -> None:
        """Add a time in which the agent ran."""
        self._database.run(
            "INSERT INTO run (begun_ns, until_ns) VALUES (?, ?)", (begun_ns, until_ns)
        )

    def extend_run(self, number: int, now_ns: int) -> None:
        """Note that the agent still runs."""
        self._database.run(
            "UPDATE run SET until_ns = max(until_ns, ?) WHERE id = ?", (now_ns, number)
        )

    def remove_files(self, paths: Iterable[str]) -> None:
        """Forget files."""
        for path in paths:
            self._database.run("DELETE FROM file WHERE path = ?", (path,))

    def forget(self, before_ns: int) -> None:
        """Forget runs, unrecorded times and findings before a time, and processes without a file.

        One that continues is added again with its next file.
        """
        self._database.run("DELETE FROM run WHERE until_ns < ?", (before_ns,))
        self._database.run("DELETE FROM unrecorded WHERE until_ns < ?", (before_ns,))
        self._database.run("DELETE FROM finding WHERE until_ns < ?", (before_ns,))
        self._database.run(
            "DELETE FROM process WHERE NOT EXISTS (SELECT 1 FROM file WHERE process = process.id) "
            "AND NOT EXISTS (SELECT 1 FROM unrecorded WHERE process = process.id)"
        )


class IndexQueries:
    """What can be asked."""

    def __init__(self, database: RingDatabase) -> None:
        self._database = database

    def oldest(self, number: int, ended_before_ns: int | None = None) -> list[IndexedFile]:
        """The first `number` files by their ends, of those that ended before a time."""
        most = (1 << 63) - 1 if ended_before_ns is None else ended_before_ns
        rows = self._database.rows(
            f"SELECT {_FILE} FROM file WHERE end_ns < ? ORDER BY end_ns LIMIT ?", (most, number)
        )
        return list(map(_file, rows))

    def size(self) -> tuple[int, int]:
        """How many files there are, and the bytes that they take: reads a row for each."""
        count, taken = self._database.row("SELECT count(*), coalesce(sum(bytes), 0) FROM file")
        return int(count), int(taken)

    def times(self) -> tuple[int, int] | None:
        """When the file that ended first began and the newest ends; None without files."""
        first, last = self._database.row(
            "SELECT (SELECT start_ns FROM file ORDER BY end_ns LIMIT 1), "
            "(SELECT max(end_ns) FROM file)"
        )
        return None if first is None else (int(first), int(last))

    def spans(self) -> list[tuple[int, int]]:
        """The begin and the end of each file."""
        return [_typed(_RUN_TYPES, row) for row in self._database.rows(_SPANS)]

    def paths(self) -> dict[str, int]:
        """The paths of all files, with the bytes that they take."""
        return dict(self._database.rows("SELECT path, bytes FROM file"))

    def files_between(self, begun_ns: int, until_ns: int) -> list[IndexedFile]:
        """The files whose time lies in a time, wholly or in part, oldest first."""
        rows = self._database.rows(
            f"SELECT {_FILE} FROM file WHERE end_ns > ? AND start_ns < ? ORDER BY start_ns, path",
            (begun_ns, until_ns),
        )
        return list(map(_file, rows))

    def processes(self) -> list[IndexedProcess]:
        """All processes."""
        return list(
            map(_process, self._database.rows(f"SELECT {_PROCESS} FROM process ORDER BY began_ns"))
        )

    def runs_between(self, begun_ns: int, until_ns: int) -> list[tuple[int, int]]:
        """When the agent ran, in a time and at its edges: begins and ends."""
        rows = self._database.rows(
            "SELECT begun_ns, until_ns FROM run WHERE until_ns >= ? AND begun_ns <= ? "
            "ORDER BY begun_ns",
            (begun_ns, until_ns),
        )
        return [_typed(_RUN_TYPES, row) for row in rows]

    def unrecorded_between(self, begun_ns: int, until_ns: int) -> list[Unrecorded]:
        """When processes were not recorded, in a time."""
        rows = self._database.rows(
            "SELECT process, begun_ns, until_ns, reason FROM unrecorded "
            "WHERE until_ns > ? AND begun_ns < ? ORDER BY begun_ns",
            (begun_ns, until_ns),
        )
        return [Unrecorded(*_typed(_UNRECORDED_TYPES, row)) for row in rows]

    def findings_between(self, begun_ns: int, until_ns: int) -> list[IndexedFinding]:
        """What was found wrong with processes in a time, by when it was first found."""
        # A reader can't add the table to an index that an earlier release wrote.
        if not self._database.rows("SELECT 1 FROM sqlite_master WHERE name = 'finding'"):
            return []
        rows = self._database.rows(
            "SELECT boot, pid, start_ns, begun_ns, until_ns, finding FROM finding "
            "WHERE until_ns >= ? AND begun_ns <= ? ORDER BY begun_ns, id",
            (begun_ns, until_ns),
        )
        return list(map(_found, rows))


def _typed(kind: Any, row: Sequence[Any]) -> Any:  # noqa: ANN401 - a row of the type `kind`
    """The row, whose values may have any type in SQLite. Raises IndexDamagedError."""
    try:
        return from_plain(kind, list(row))
    except InvalidProfile as error:
        raise IndexDamagedError("a value has an unexpected type") from error


def _file(row: Sequence[Any]) -> IndexedFile:
    *rest, text = row
    path, process, kind, start_ns, end_ns, taken, is_estimate = _typed(_FILE_TYPES, rest)
    totals = _from_json(tuple[int, ...], text)
    return IndexedFile(path, process, kind, start_ns, end_ns, taken, bool(is_estimate), totals)


def _found(row: Sequence[Any]) -> IndexedFinding:
    *rest, text = row
    boot, pid, start_ns, begun_ns, until_ns = _typed(_FINDING_TYPES, rest)
    return IndexedFinding(
        (boot, pid, start_ns), begun_ns, until_ns, _from_json(ServiceFinding, text)
    )


def _process(row: Sequence[Any]) -> IndexedProcess:
    number, boot, pid, start_ns, began_ns, ended_ns, command, go_version, text = _typed(
        _PROCESS_TYPES, row
    )
    identity = _from_json(ServiceIdentity, text)
    process = RingProcess(identity, pid, start_ns, boot, began_ns, command, go_version)
    return IndexedProcess(number, process, ended_ns)


def _from_json(kind: Any, text: object) -> Any:  # noqa: ANN401 - of the type `kind`
    try:
        return from_plain(kind, json.loads(text if isinstance(text, str) else ""))
    except (InvalidProfile, ValueError, RecursionError) as error:
        raise IndexDamagedError("a value is not the expected JSON") from error
