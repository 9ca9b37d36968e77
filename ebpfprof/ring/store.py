"""The files of the ring and their index, kept in agreement and within bounds, for one writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from ebpfprof.ring.bounds import Bounds
from ebpfprof.ring.contents import facts
from ebpfprof.ring.database import IndexDamagedError, RingDatabase
from ebpfprof.ring.folder import RingFolder, path_of
from ebpfprof.ring.index import IndexChanges, IndexedFile, IndexQueries
from ebpfprof.ring.reconcile import add_files, remove_torn, runs_of

_NS: Final = 1_000_000_000
_AT_ONCE: Final = 64
_FORGET_NS: Final = 60 * _NS
_APART_NS: Final = 5 * _NS  # shorter gaps between windows are none


class RingStore:
    """An open folder with its index. Not for several threads at once.

    `pruned` counts files that were removed, by reason: age, bytes, free_space. `unreadable` counts
    files without facts. `rebuilt` says why the index was rebuilt. Methods raise OSError, and what
    those of RingDatabase do.
    """

    def __init__(self, folder: RingFolder, bounds: Bounds, now_ns: Callable[[], int]) -> None:
        """Open the index, rebuilt if it is damaged, and make it agree with the files.

        Raises RingError for an index of another version.
        """
        self._folder = folder
        self._bounds = bounds
        self._now_ns = now_ns
        self._database: RingDatabase | None = None
        self._run = 0
        self._files = self._bytes = 0  # to count rows for each window would take too long
        self._forgot_ns = 0
        self.pruned: Counter[str] = Counter()
        self.unreadable = 0
        self.rebuilt = ""
        folder.require_index(create=True)
        try:
            self._open()
        except IndexDamagedError as error:
            self.rebuild(str(error))
        self.prune_old()

    def close(self) -> None:
        """Close the index."""
        if self._database:
            self._database.close()
            self._database = None

    def rebuild(self, reason: str) -> None:
        """Rebuild the index from the files."""
        self.close()
        self._folder.remove_index()
        self._folder.require_index(create=True)
        self._open(is_rebuilt=True)
        self.rebuilt = reason

    @contextmanager
    def changes(self) -> Iterator[IndexChanges]:
        """Changes of the index, all or none, which also note that the agent runs."""
        database = self._opened()
        with database.transaction():
            changes = IndexChanges(database)
            yield changes
            changes.extend_run(self._run, self._now_ns())

    def store(self, files: Iterable[bytes]) -> None:
        """Write files and their rows, or nothing. Also raises OutputError."""
        written: list[tuple[str, int, bytes]] = []
        try:
            for data in files:
                about = facts(data)
                service, pid = about.process.identity.service, about.process.pid
                path = path_of(about.start_ns, service, pid, about.kind)
                written.append((*self._folder.write(path, data), data))
            with self.changes() as changes:
                for path, taken, data in written:
                    changes.add_file(path, facts(data), taken)
            self._files += len(written)
            self._bytes += sum(taken for _, taken, _ in written)
        except BaseException:  # Ctrl-C too: all kinds of a window, or none
            for path, _, _ in written:
                with suppress(OSError):  # the next start finds it, and indexes it
                    self._folder.remove(path)
            raise

    def used(self) -> tuple[int, int]:
        """How many files there are, and the bytes that all of it takes."""
        self._opened()
        return self._files, self._bytes + self._folder.index_bytes()

    def times(self) -> tuple[int, int]:
        """When the file that ended first began and the newest ends, ns; zeros without files."""
        return IndexQueries(self._opened()).times() or (0, 0)

    def make_room(self, size: int) -> bool:
        """Remove the oldest files until `size` bytes fit; False if all of them are not enough."""
        self.prune_old()
        _, used = self.used()
        free = self._folder.free_bytes()
        room = self._bounds.room(used, free)
        if size > room - self._folder.index_bytes():
            return False
        over = used + size - room
        if over > 0:
            is_by_space = self._bounds.is_by_space(used, free)
            self.prune(over, "free_space" if is_by_space else "bytes")
        return True

    def prune_old(self) -> None:
        """Remove what is too old."""
        before_ns = self._now_ns() - self._bounds.max_age_ns
        queries = IndexQueries(self._opened())
        while old := queries.oldest(_AT_ONCE, before_ns):
            self._remove(old, "age")
        if self._is_to_forget(before_ns):  # also where nothing is recorded
            with self.changes() as changes:
                changes.forget(before_ns)

    def prune(self, size: int, reason: str) -> None:
        """Remove the oldest files, of that many bytes together."""
        queries = IndexQueries(self._opened())
        while size > 0 and (old := queries.oldest(_AT_ONCE)):
            removed = []
            for file in old:
                if size <= 0:
                    break
                removed.append(file)
                size -= file.bytes
            self._remove(removed, reason)

    def _open(self, *, is_rebuilt: bool = False) -> None:
        self._database = RingDatabase.open_to_write(self._folder.index_path)
        queries, changes = IndexQueries(self._database), IndexChanges(self._database)
        self._folder.remove_unfinished()
        remove_torn(self._folder, self._strangers())
        with self._database.transaction():
            changes.remove_files(queries.paths().keys() - dict(self._folder.files()))
            self.unreadable = add_files(self._folder, changes, self._strangers())
            # When the agent ran, a rebuilt index can only infer.
            for begun_ns, until_ns in runs_of(queries.spans(), _APART_NS) if is_rebuilt else []:
                changes.add_run(begun_ns, until_ns)
            self._run = changes.begin_run(self._now_ns())
        self._files, self._bytes = queries.size()

    def _strangers(self) -> list[tuple[str, int]]:
        """The files that the index does not have."""
        known = IndexQueries(self._opened()).paths()
        return [(path, taken) for path, taken in self._folder.files() if path not in known]

    def _remove(self, files: Sequence[IndexedFile], reason: str) -> None:
        # Files first: on a full disk their rows can't be deleted before there is room again.
        for file in files:
            self._folder.remove(file.path)
        with self.changes() as changes:
            changes.remove_files(file.path for file in files)
            oldest_ns, _ = self.times()
            before_ns = oldest_ns or self._now_ns() - self._bounds.max_age_ns
            if self._is_to_forget(before_ns):
                changes.forget(before_ns)
        self._files -= len(files)
        self._bytes -= sum(file.bytes for file in files)
        self.pruned[reason] += len(files)

    def _is_to_forget(self, before_ns: int) -> bool:
        """Whether to forget what was before a time: once for each minute of it."""
        if before_ns < self._forgot_ns + _FORGET_NS:
            return False
        self._forgot_ns = before_ns
        return True

    def _opened(self) -> RingDatabase:
        if self._database is None:
            raise IndexDamagedError("it could not be rebuilt")
        return self._database
