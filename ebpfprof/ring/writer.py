"""Writes windows of services into the ring, within its bounds.

The files count, the index is a copy of what they say: a writer may be killed at any moment, and the
next one makes the index agree with the files. When the oldest are removed to make room, they go
before the new ones come, so that the ring never takes more than it may.
"""

from __future__ import annotations

import errno
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ebpfprof.console.text import printable, well_formed
from ebpfprof.errors import InvalidProfile, OutputError, RingError
from ebpfprof.profile.service import ServiceFinding, ServiceFindings, ServiceIdentity, ServiceWindow
from ebpfprof.ring.bounds import Bounds
from ebpfprof.ring.contents import RingProcess, packed
from ebpfprof.ring.database import IndexDamagedError
from ebpfprof.ring.folder import BLOCK, DEFAULT_FOLDER, MAX_FILE, RingFolder
from ebpfprof.ring.index import IndexChanges
from ebpfprof.ring.store import RingStore
from ebpfprof.system.closing import Closing

MAX_BYTES: Final = 2 << 30
"""How much the ring takes at most, if nothing else is said."""
MAX_AGE_S: Final = 7 * 86400.0
"""How old its files get, if nothing else is said."""
KEEP_FREE_BYTES: Final = 1 << 30
"""What it leaves free in the file system, if nothing else is said."""

_MAX_TEXT: Final = 500
_MAX_LINES: Final = 4
_NS: Final = 1_000_000_000
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_OF_INDEX: Final = (OSError, sqlite3.Error, IndexDamagedError)
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class RingState:
    """What the ring holds, and what happened since it was opened.

    `bytes` is all that it takes, with its index. `oldest_s` and `newest_s` are Unix time, 0 without
    files. `pruned` counts files by reason: age, bytes, free_space. `dropped` counts windows that
    could not be written: no_space, too_large, invalid, io_error. `unnoted` counts notes that could
    not: of findings, of ends, and of times that were not recorded. `unreadable` counts files
    without facts. `rebuilt` says why the index was rebuilt, "" if it was not. `last_error` is why a
    window or a note was last not written, a sentence.
    """

    files: int
    bytes: int
    oldest_s: float
    newest_s: float
    written: int
    pruned: Mapping[str, int]
    dropped: Mapping[str, int]
    unnoted: int
    unreadable: int
    rebuilt: str
    last_error: str


def boottime_ns() -> int:
    """CLOCK_BOOTTIME."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Ring(Closing):
    """The writer of a folder; any thread may call it. There is one at a time."""

    def __init__(
        self,
        folder: Path = DEFAULT_FOLDER,
        max_bytes: int = MAX_BYTES,
        max_age_s: float = MAX_AGE_S,
        keep_free_bytes: int = KEEP_FREE_BYTES,
        *,
        clock: Callable[[], float] = time.time,
        boottime_ns: Callable[[], int] = boottime_ns,
    ) -> None:
        """Open the folder, or make it, and begin to note that the agent runs.

        Raises RingError, PermissionDenied; also if another process writes to it.
        """
        bounds = Bounds(max_bytes, max_age_s, keep_free_bytes)
        self._most_at_once = max_bytes // 2
        self._clock, self._boottime_ns = clock, boottime_ns
        self._lock = threading.Lock()
        self._boot = _BOOT.read_text().strip()
        self._written = 0
        self._dropped: Counter[str] = Counter()
        self._unnoted = 0
        self._last_error = ""
        self._folder = RingFolder.open(folder, create=True)
        try:
            self._folder.lock()
            self._store = RingStore(self._folder, bounds, lambda: _ns(self._clock()))
        except BaseException as error:  # Ctrl-C too: nobody else closes it
            self._folder.close()
            if isinstance(error, _OF_INDEX):
                raise RingError(
                    f"{printable(str(folder))} can't be used: {error}. Make room, or choose "
                    "another folder."
                ) from error
            raise

    def write(self, window: ServiceWindow) -> bool:
        """Write a window, one file for each kind, and note that the agent runs.

        If that fails, nothing of it is left, the window is counted as dropped, and False comes
        back; the ring continues.
        """
        begun_ns, end_ns = _ns(window.start_s), _ns(window.end_s)
        process = self._process(
            window.identity,
            window.pid,
            window.process_start_ns,
            window.command,
            window.go_version,
            begun_ns,
        )
        with self._lock:
            try:
                files = [
                    packed(profile, process, begun_ns, max(begun_ns, end_ns))
                    for profile in window.profiles.values()
                ]
            except InvalidProfile as error:
                return self._drop("invalid", str(error))
            except Exception as error:  # one bad profile must not hold up all others
                return self._drop("invalid", f"{type(error).__name__}: {error}")
            size = sum(-(-len(data) // BLOCK) * BLOCK for data in files)
            if size > self._most_at_once or any(len(data) > MAX_FILE for data in files):
                return self._drop("too_large", f"A window of {size} bytes does not fit.")
            return self._write(files, size)

    def beat(self) -> None:
        """Note that the agent still runs, and remove what is too old. Call it every few seconds."""
        with self._lock, suppress(*_OF_INDEX):  # the next call does both
            with self._store.changes():
                pass
            self._store.prune_old()

    def note_unrecorded(
        self,
        identity: ServiceIdentity,
        pid: int,
        process_start_ns: int,
        command: str,
        start_s: float,
        end_s: float,
        reason: str,
    ) -> bool:
        """Note that a process was not recorded from `start_s` to `end_s`, and why: a few words.

        Returns False if that can't be written; then it is counted. So do the other notes.
        """
        begun_ns, end_ns = _ns(start_s), _ns(end_s)
        process = self._process(identity, pid, process_start_ns, command, "", begun_ns)
        return self._note(
            lambda changes: changes.note_unrecorded(process, begun_ns, end_ns, well_formed(reason))
        )

    def note_findings(self, findings: ServiceFindings) -> bool:
        """Note what was found wrong with a process; see note_unrecorded()."""
        key = self._boot, findings.pid, findings.process_start_ns
        until_ns = _ns(findings.time_s)

        def note(changes: IndexChanges) -> None:
            for finding in findings.findings:
                begun_ns = min(_ns(finding.since_s), until_ns)
                changes.note_finding(key, begun_ns, until_ns, _short(finding))

        return self._note(note)

    def note_ended(self, pid: int, process_start_ns: int, end_s: float) -> bool:
        """Note when a process ended (Unix time); see note_unrecorded()."""
        process = self._boot, pid, process_start_ns
        return self._note(lambda changes: changes.note_ended(process, _ns(end_s)))

    def state(self) -> RingState:
        """What it holds, for metrics."""
        with self._lock:
            files = taken = oldest_ns = newest_ns = 0
            with suppress(*_OF_INDEX):  # as of an empty ring; writes report the error
                files, taken = self._store.used()
                oldest_ns, newest_ns = self._store.times()
            return RingState(
                files,
                taken,
                oldest_ns / _NS,
                newest_ns / _NS,
                self._written,
                dict(self._store.pruned),
                dict(self._dropped),
                self._unnoted,
                self._store.unreadable,
                self._store.rebuilt,
                self._last_error,
            )

    def close(self) -> None:
        """Note until when the agent ran, and close all."""
        with self._lock:
            with suppress(*_OF_INDEX), self._store.changes():  # the last beat() noted it
                pass
            self._store.close()
            self._folder.close()

    def _write(self, files: Sequence[bytes], size: int) -> bool:
        """Write the files of a window, at the second try after making more room."""
        reason, why = "io_error", ""
        for tries in range(2):
            try:
                if tries and reason == "no_space":
                    self._store.prune(size, "free_space")
                if not self._store.make_room(size):
                    return self._drop("no_space", why or "There is no space left on the disk.")
                self._store.store(files)
                self._written += 1
                return True
            except IndexDamagedError as error:
                why = str(error)
                with suppress(*_OF_INDEX, RingError):  # the next try reports the error
                    self._store.rebuild(why)
            except (OSError, OutputError, sqlite3.Error) as error:
                reason, why = "no_space" if _is_full(error) else "io_error", str(error)
        return self._drop(reason, why)

    def _note(self, note: Callable[[IndexChanges], None]) -> bool:
        """Write a note; returns False if that can't be done, and counts it."""
        with self._lock:
            try:
                with self._store.changes() as changes:
                    note(changes)
            except _OF_INDEX as error:
                self._unnoted += 1
                self._last_error = str(error)
                return False
        return True

    def _drop(self, reason: str, why: str) -> bool:
        self._dropped[reason] += 1
        self._last_error = why
        return False

    def _process(
        self,
        identity: ServiceIdentity,
        pid: int,
        start_ns: int,
        command: str,
        go_version: str,
        seen_ns: int,
    ) -> RingProcess:
        """The process; `seen_ns` is when it ran for certain."""
        ago_ns = self._boottime_ns() - start_ns
        began_ns = max(0, min(_ns(self._clock()) - ago_ns, seen_ns))
        command, go_version = well_formed(command), well_formed(go_version)
        named = _well_formed(identity)
        return RingProcess(named, pid, start_ns, self._boot, began_ns, command, go_version)


def _ns(seconds: float) -> int:
    return round(seconds * _NS)


def _well_formed(identity: ServiceIdentity) -> ServiceIdentity:
    """The identity in texts that files and the index can hold: names may come from a process."""
    return ServiceIdentity(
        service=well_formed(identity.service),
        namespace=well_formed(identity.namespace),
        version=well_formed(identity.version),
        node=well_formed(identity.node),
        pod=well_formed(identity.pod),
        container=well_formed(identity.container),
        labels={well_formed(key): well_formed(label) for key, label in identity.labels.items()},
    )


def _short(finding: ServiceFinding) -> ServiceFinding:
    """The finding with texts that the index can hold, of a bounded length."""
    return replace(
        finding,
        title=well_formed(finding.title[:_MAX_TEXT]),
        subject=well_formed(finding.subject[:_MAX_TEXT]),
        lines=tuple(well_formed(line[:_MAX_TEXT]) for line in finding.lines[:_MAX_LINES]),
        place=well_formed(finding.place[:_MAX_TEXT]),
    )


def _is_full(error: Exception) -> bool:
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorname", "").startswith("SQLITE_FULL")
    return isinstance(error, OSError) and error.errno in _FULL
