"""Go programs' files that were inspected, each once for all the processes that run it now."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what reads executables is imported late, see Session.__init__
    from ebpfprof.goruntime.process import GoProgram
    from ebpfprof.process.process import Target

_FileId = tuple[int, int, int, int, int]


@dataclass(slots=True)
class _Shared:
    program: GoProgram
    users: int = 0


class Programs:
    """Programs in use, by their files. Safe to be used by several threads.

    To inspect one takes 50 ms of a processor and some megabytes, as much for a process of 300 ms as
    for a service. Nothing is kept of a file that no process of ours runs any more.
    """

    def __init__(self, *, allow_unknown_go: bool = False, runtime_locks: bool = False) -> None:
        """For the options see gotarget.inspect_program."""
        self._allow_unknown_go = allow_unknown_go
        self._runtime_locks = runtime_locks
        self._lock = threading.Lock()
        self._shared: dict[_FileId, _Shared] = {}

    @contextmanager
    def of(self, target: Target) -> Iterator[GoProgram]:
        """What `target` runs, open while the block runs. Raises what inspect_program does."""
        file = _file_id(target.exe_fd)
        shared = self._taken(file) or self._add(file, self._inspected(target))
        try:
            yield shared.program
        finally:
            self._give_back(file, shared)

    def _inspected(self, target: Target) -> GoProgram:
        """Without the lock: others need not wait for a file that takes its time."""
        from ebpfprof.goruntime.process import inspect_program

        return inspect_program(
            target, allow_unknown_go=self._allow_unknown_go, runtime_locks=self._runtime_locks
        )

    def _taken(self, file: _FileId) -> _Shared | None:
        with self._lock:
            shared = self._shared.get(file)
            if shared is not None:
                shared.users += 1
            return shared

    def _add(self, file: _FileId, program: GoProgram) -> _Shared:
        with self._lock:
            shared = self._shared.setdefault(file, _Shared(program))
            shared.users += 1
        if shared.program is not program:  # another thread was quicker
            program.close()
        return shared

    def _give_back(self, file: _FileId, shared: _Shared) -> None:
        with self._lock:
            shared.users -= 1
            if shared.users:
                return
            del self._shared[file]
        shared.program.close()


def _file_id(fd: int) -> _FileId:
    """A file as it is now: one that is written anew counts as another one."""
    file = os.fstat(fd)
    return (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns)
