"""The SQLite file of the index: how it is opened, and what can go wrong with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self
from urllib.parse import quote

from ebpfprof.errors import RingError

VERSION: Final = 1
"""The version of the tables."""

_MARK: Final = 0x65427066  # "eBpf": the file is ours
BUSY_S: Final = 10.0
_MAY_PASS: Final = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_BUSY", "SQLITE_LOCKED")
_LOG_PAGES: Final = 64  # of 4 KiB: so long may the write-ahead log get, about
_FINDINGS: Final = """
CREATE TABLE IF NOT EXISTS finding (
    id INTEGER PRIMARY KEY, boot TEXT NOT NULL, pid INTEGER NOT NULL, start_ns INTEGER NOT NULL,
    kind TEXT NOT NULL, subject TEXT NOT NULL, begun_ns INTEGER NOT NULL,
    until_ns INTEGER NOT NULL, finding TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS finding_by_time ON finding (until_ns);
"""
"""Indexes of the same version may lack this table: earlier releases did not have it."""
_SCHEMA: Final = f"""
PRAGMA application_id = {_MARK};
CREATE TABLE process (
    id INTEGER PRIMARY KEY, boot TEXT NOT NULL, pid INTEGER NOT NULL, start_ns INTEGER NOT NULL,
    began_ns INTEGER NOT NULL, ended_ns INTEGER, command TEXT NOT NULL, go_version TEXT NOT NULL,
    identity TEXT NOT NULL, UNIQUE (boot, pid, start_ns, identity, command));
CREATE TABLE file (
    path TEXT PRIMARY KEY, process INTEGER NOT NULL, kind TEXT NOT NULL, start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL, bytes INTEGER NOT NULL, is_estimate INTEGER NOT NULL,
    totals TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX file_by_time ON file (end_ns);
CREATE INDEX file_by_process ON file (process);
CREATE TABLE run (id INTEGER PRIMARY KEY, begun_ns INTEGER NOT NULL, until_ns INTEGER NOT NULL);
CREATE TABLE unrecorded (
    id INTEGER PRIMARY KEY, process INTEGER NOT NULL, begun_ns INTEGER NOT NULL,
    until_ns INTEGER NOT NULL, reason TEXT NOT NULL);
{_FINDINGS}
PRAGMA user_version = {VERSION};
"""


class IndexDamagedError(Exception):
    """The index can't be read; the files can. The message is a reason, for people."""


class RingDatabase:
    """An open index. Methods raise IndexDamagedError; sqlite3.OperationalError for what may pass.

    That is a full disk, one that fails, or an index that another program locks.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    @classmethod
    def open_to_write(cls, path: str) -> Self:
        """Open the index, or make it in an empty file. Raises RingError for a newer version."""
        index = cls(_connected(f"file:{quote(path)}?mode=rw"))
        try:
            with _typed_errors():
                index._execute("PRAGMA journal_mode = WAL")
                # A commit may be lost if the machine loses power; the files are durable.
                index._execute("PRAGMA synchronous = NORMAL")
                index._execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
                (version,) = index._execute("PRAGMA user_version").fetchone()
                (verdict,) = index._execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise IndexDamagedError(str(verdict))
            index._require_version(version, may_be_new=True)
            if version == 0:
                with _typed_errors():
                    index._database.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
            with _typed_errors():
                index._database.executescript(_FINDINGS)
        except BaseException:  # Ctrl-C too: nobody else closes it
            index.close()
            raise
        return index

    @classmethod
    def open_to_read(cls, path: str) -> Self:
        """Open the index beside a writer. Raises RingError for another version."""
        try:
            return cls._reading(f"file:{quote(path)}?mode=rw")
        except IndexDamagedError:
            # On a file system that can't be written to there is no writer either.
            return cls._reading(f"file:{quote(path)}?mode=ro&immutable=1")

    @classmethod
    def _reading(cls, uri: str) -> Self:
        index = cls(_connected(uri))
        try:
            with _typed_errors():
                index._execute("PRAGMA query_only = ON")
                (version,) = index._execute("PRAGMA user_version").fetchone()
                (mark,) = index._execute("PRAGMA application_id").fetchone()
            if mark != _MARK:
                raise IndexDamagedError("ebpfprof did not create it")
            index._require_version(version)
        except BaseException:  # Ctrl-C too: nobody else closes it
            index.close()
            raise
        return index

    @classmethod
    def in_memory(cls) -> Self:
        """An empty index that no file holds."""
        index = cls(_connected("file::memory:"))
        index._database.executescript(_SCHEMA)
        return index

    def close(self) -> None:
        """Close it; what was written stays."""
        self._database.close()

    @contextmanager
    def transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        """All or nothing of what the block writes; the same state for all that it reads."""
        with _typed_errors():
            self._execute(f"BEGIN {kind}")
        try:
            yield
            with _typed_errors():
                self._execute("COMMIT")
        except BaseException:  # Ctrl-C too: all or nothing
            if self._database.in_transaction:
                with _typed_errors():
                    self._execute("ROLLBACK")
            raise

    def run(self, sql: str, values: Sequence[object] = ()) -> int:
        """Run a statement that writes; how many rows it changed."""
        with _typed_errors():
            return self._execute(sql, values).rowcount

    def row(self, sql: str, values: Sequence[object] = ()) -> Any:  # noqa: ANN401 - as sqlite3
        """The first row of a query."""
        with _typed_errors():
            return self._execute(sql, values).fetchone()

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """The rows of a query."""
        with _typed_errors():
            return self._execute(sql, values).fetchall()

    def _require_version(self, version: int, *, may_be_new: bool = False) -> None:
        if version == VERSION or (may_be_new and version == 0):
            return
        if version > VERSION:
            raise RingError(
                f"The index of the recorded profiles has version {version}, and this ebpfprof "
                f"knows {VERSION}: use the newer ebpfprof that wrote it, or another folder."
            )
        raise RingError(
            f"The index of the recorded profiles has version {version}, and this ebpfprof knows "
            f"{VERSION}: start the agent of this version, which makes a new one."
        )

    def _execute(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        return self._database.execute(sql, values)


@contextmanager
def _typed_errors() -> Iterator[None]:
    """Raise IndexDamagedError for what sqlite3 raises, but for what may pass."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "").startswith(_MAY_PASS):
            raise
        raise IndexDamagedError(str(error)) from error
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise IndexDamagedError(str(error)) from error


def _connected(uri: str) -> sqlite3.Connection:
    with _typed_errors():
        database = sqlite3.connect(
            uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        return database
