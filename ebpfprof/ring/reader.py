"""Reads the ring, also while the agent writes: what there is of a time, and the profiles of it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ebpfprof.console.text import printable
from ebpfprof.errors import RingError, to_type
from ebpfprof.profile.model import Profile
from ebpfprof.ring.contents import unpacked
from ebpfprof.ring.database import IndexDamagedError, RingDatabase
from ebpfprof.ring.folder import DEFAULT_FOLDER, RingFolder
from ebpfprof.ring.index import (
    IndexChanges,
    IndexedFile,
    IndexedFinding,
    IndexedProcess,
    IndexQueries,
    Unrecorded,
)
from ebpfprof.ring.intervals import Interval
from ebpfprof.ring.reconcile import add_files, runs_of
from ebpfprof.system.closing import Closing

_APART_NS = 5_000_000_000


@dataclass(frozen=True, slots=True)
class RecordedTime:
    """What the ring has of a time: Unix time in ns.

    `processes` are all that the index knows, by number. `files` lie in the time, wholly or in part,
    oldest first. `runs` are when the agent ran, also beyond the time; if they are `inferred`, from
    the files only. `now_ns` is when the ring was asked. `findings` are what was found wrong with
    processes.
    """

    begun_ns: int
    until_ns: int
    processes: Mapping[int, IndexedProcess]
    files: Sequence[IndexedFile]
    runs: Sequence[Interval]
    unrecorded: Sequence[Unrecorded]
    now_ns: int
    inferred: bool = False
    findings: Sequence[IndexedFinding] = ()


class RingArchive(Closing):
    """A folder of recorded profiles. `warning` is a sentence about its state, "" if all is well."""

    def __init__(self, path: Path = DEFAULT_FOLDER) -> None:
        """Open the folder. Raises RingError if nothing is there, PermissionDenied."""
        self.path = path
        self.warning = ""
        self._inferred = False
        shown = printable(str(path))
        try:
            self._folder = RingFolder.open(path)
        except FileNotFoundError as error:
            raise RingError(
                f"Nothing was recorded in {shown}, which does not exist. --path or --config names "
                f"another folder. To record continuously:{to_type('sudo ebpfprof agent')}"
            ) from error
        try:
            self._database = self._index(shown)
        except BaseException:  # Ctrl-C too: nobody else closes it
            self._folder.close()
            raise

    def between(self, begun_ns: int, until_ns: int) -> RecordedTime:
        """What there is of a time. Raises RingError."""
        queries = IndexQueries(self._database)
        try:
            with self._database.transaction("DEFERRED"):
                return RecordedTime(
                    begun_ns,
                    until_ns,
                    {process.number: process for process in queries.processes()},
                    queries.files_between(begun_ns, until_ns),
                    queries.runs_between(begun_ns, until_ns),
                    queries.unrecorded_between(begun_ns, until_ns),
                    time.time_ns(),
                    self._inferred,
                    queries.findings_between(begun_ns, until_ns),
                )
        except (IndexDamagedError, sqlite3.Error) as error:
            raise RingError(f"The index of {printable(str(self.path))} is damaged: {error}.") from (
                error
            )

    def times(self) -> Interval | None:
        """When the oldest file begins and the newest ends; None without files."""
        try:
            return IndexQueries(self._database).times()
        except (IndexDamagedError, sqlite3.Error):
            return None

    def load(self, file: IndexedFile) -> Profile:
        """The profile in a file.

        Raises InvalidProfile; OSError if it can't be read, FileNotFoundError if it was removed to
        make room since.
        """
        _, profile = unpacked(self._folder.read(file.path))
        return profile

    def close(self) -> None:
        """Close the folder."""
        self._database.close()
        self._folder.close()

    def _index(self, shown: str) -> RingDatabase:
        """The index; one in memory, of all files, if it is missing or damaged. Raises RingError."""
        if not self._folder.require_index():
            if next(self._folder.files(), None) is None:
                raise RingError(
                    f"Nothing was recorded in {shown} yet. --path or --config names another "
                    f"folder. To record continuously:{to_type('sudo ebpfprof agent')}"
                )
            reason = "it is missing"
        else:
            try:
                database = RingDatabase.open_to_read(self._folder.index_path)
            except (IndexDamagedError, sqlite3.Error) as error:
                reason = str(error)
            else:
                try:
                    queries = IndexQueries(database)
                    queries.processes()
                    queries.spans()
                    return database
                except (IndexDamagedError, sqlite3.Error) as error:
                    database.close()
                    reason = str(error)
        self.warning = (
            f"The index of {shown} can't be read ({printable(reason)}): its files were read one by "
            "one, and when the agent ran is inferred from them. The agent makes a new index when "
            "it starts."
        )
        self._inferred = True
        database = RingDatabase.in_memory()
        changes = IndexChanges(database)
        add_files(self._folder, changes, self._folder.files())
        for begun_ns, until_ns in runs_of(IndexQueries(database).spans(), _APART_NS):
            changes.add_run(begun_ns, until_ns)
        return database
