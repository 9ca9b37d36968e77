"""The files with Go runtimes: each is read once for all its processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the readers of executables are imported late: see Session.__init__
    from ebpfprof.goruntime.process import GoProgram
    from ebpfprof.goruntime.runtimes import GoRuntime
    from ebpfprof.process.process import Target

_FileId = tuple[int, int, int, int, int]


@dataclass(slots=True)
class _Shared:
    """A program, and how many targets use it."""

    program: GoProgram
    users: int = 0


class Programs:
    """The programs and libraries that targets run, by file. Several threads may use it.

    To read a program takes 50 ms of CPU time and some megabytes, which is much for a process that
    lives for 300 ms. A program is closed when the last target that runs it is closed.
    """

    def __init__(self, *, runtime_locks: bool = False) -> None:
        """For `runtime_locks` see GoProgram."""
        self._runtime_locks = runtime_locks
        self._lock = threading.Lock()
        self._shared: dict[_FileId, _Shared] = {}

    @contextmanager
    def of(
        self, target: Target, runtime: GoRuntime, *, allow_unknown_go: bool = False
    ) -> Iterator[GoProgram]:
        """The file of a runtime of `target`, open within the block. Raises as open_program.

        It may be of an unknown version of Go though that is not allowed, if others use it already.
        """
        file = _file_id(runtime.fd)
        shared = self._acquire(file)
        if shared is None:
            shared = self._add(file, self._opened(target, runtime, allow_unknown_go))
        try:
            yield shared.program
        finally:
            self._release(file, shared)

    def _opened(self, target: Target, runtime: GoRuntime, allow_unknown_go: bool) -> GoProgram:
        """Runs without the lock: other threads need not wait for a slow file."""
        from ebpfprof.goruntime.process import open_program

        return open_program(
            target,
            runtime,
            allow_unknown_go=allow_unknown_go,
            runtime_locks=self._runtime_locks,
        )

    def _acquire(self, file: _FileId) -> _Shared | None:
        with self._lock:
            shared = self._shared.get(file)
            if shared is not None:
                shared.users += 1
            return shared

    def _add(self, file: _FileId, program: GoProgram) -> _Shared:
        with self._lock:
            shared = self._shared.setdefault(file, _Shared(program))
            shared.users += 1
        if shared.program is not program:  # another thread has added it meanwhile
            program.close()
        return shared

    def _release(self, file: _FileId, shared: _Shared) -> None:
        with self._lock:
            shared.users -= 1
            if shared.users:
                return
            del self._shared[file]
        shared.program.close()


def _file_id(fd: int) -> _FileId:
    """Identifies a file and its content: after a write, the file counts as another one."""
    file = os.fstat(fd)
    return (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns)
