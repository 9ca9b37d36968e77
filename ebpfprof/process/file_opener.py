"""Opens files of targets: regular files only, in the target's own root, with a time limit.

Opening a FIFO or a device could block, or have effects. A file system that does not answer blocks
the process that opens or reads a file of it, and no signal ends that.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Sequence

from ebpfprof.system.channel import Frame
from ebpfprof.system.closing import Closing
from ebpfprof.system.file_worker import PATIENCE_S, FileWorker, NoAnswerError

_SYS_OPENAT2 = 437  # arch/x86/entry/syscalls/syscall_64.tbl
_RESOLVE_NO_MAGICLINKS = 0x02  # include/uapi/linux/openat2.h
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_RESOLVE_IN_ROOT = 0x10
_OPEN_ATTEMPTS = 8
_TOUCHED = 16
_PAGE_BYTES = 4096

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    """struct open_how, include/uapi/linux/openat2.h."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class FileOpener:
    """Opens files in this process."""

    def open(self, link: str) -> int:
        """Open the regular file behind a link in /proc for reading. Raises OSError."""
        path_fd = os.open(link, os.O_PATH | os.O_CLOEXEC)
        try:
            return _reopen_regular(path_fd)
        finally:
            os.close(path_fd)

    def open_in_root(self, root_fd: int, path: str) -> int:
        """Open a regular file for reading, by its `path` in the root folder `root_fd`.

        No symbolic link and no ".." leads out of the root. Raises OSError if there is no such file
        or it is not a regular one.
        """
        return _open_below(root_fd, path, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)


class WorkerFileOpener(FileOpener, Closing):
    """Opens files in a file worker, which also reads a few pages of each.

    A file that takes too long raises TimeoutError. To be made before there are threads; a context
    manager.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._worker = FileWorker(_OpenTask, patience_s=patience_s)

    def open(self, link: str) -> int:
        """See FileOpener."""
        return self._ask(link)

    def open_in_root(self, root_fd: int, path: str) -> int:
        """See FileOpener."""
        return self._ask(path, [root_fd])

    def close(self) -> None:
        """End the worker; if it is stuck, leave it behind."""
        self._worker.close()

    def _ask(self, path: str, fds: Sequence[int] = ()) -> int:
        try:
            (fd,) = self._worker.ask(path, fds).fds
        except NoAnswerError as error:
            raise TimeoutError(errno.ETIMEDOUT, f"its file system {error}") from error
        return fd


class _OpenTask:
    """What the file worker does."""

    def __init__(self) -> None:
        self._files = FileOpener()

    def begin(self) -> None:
        """Do nothing: each request stands alone."""

    def answer(self, request: str, fds: Sequence[int]) -> Frame:
        """Open the file behind a link, or with a root folder in `fds` a file in that."""
        fd = self._files.open_in_root(fds[0], request) if fds else self._files.open(request)
        _touch(fd)
        return Frame(fds=[fd])


def open_beneath(folder_fd: int, path: str) -> int:
    """Open a regular file for reading, by its `path` below a folder, without following any link.

    Raises OSError, also if the path leads out of the folder.
    """
    return _open_below(
        folder_fd, path, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
    )


def _open_below(folder_fd: int, path: str, resolve: int) -> int:
    how = _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, resolve)
    code = errno.EAGAIN
    for _ in range(_OPEN_ATTEMPTS):  # EAGAIN: a folder was renamed meanwhile
        path_fd = _libc.syscall(
            _SYS_OPENAT2, folder_fd, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)
        )
        if path_fd >= 0:
            try:
                return _reopen_regular(path_fd)
            finally:
                os.close(path_fd)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code))


def _touch(fd: int) -> None:
    """Read pages from all over the file, only to see that the file system delivers them."""
    with contextlib.suppress(OSError):  # the reader reports the error
        size = os.fstat(fd).st_size
        for part in range(_TOUCHED + 1):
            os.pread(fd, _PAGE_BYTES, max(0, size - _PAGE_BYTES) * part // _TOUCHED)


def _reopen_regular(path_fd: int) -> int:
    """Open the file of an O_PATH descriptor for reading. Raises OSError unless it is regular.

    The check comes first: other files are never opened.
    """
    if not stat.S_ISREG(os.fstat(path_fd).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    return os.open(f"/proc/self/fd/{path_fd}", flags)
