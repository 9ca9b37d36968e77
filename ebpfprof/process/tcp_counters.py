"""What the kernel counted for the TCP connections of a process: tcp_info (tcp(7)).

A copy of each socket answers, for some microseconds (pidfd_getfd(2), since Linux 5.6). Unlike
sock_diag(7), this needs no rights in the network namespace of the process, and reads nothing of the
other connections there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ebpfprof.process.descriptors import internet_sockets
from ebpfprof.profile.connections import TcpConnection

if TYPE_CHECKING:
    from ebpfprof.process.proc_files import ProcFiles

_MOST_DESCRIPTORS: Final = 4096
"""To read the counters of more connections takes too long."""
_SOCKET: Final = re.compile(r"socket:\[(\d{1,20})\]")
_TABLES: Final = ("net/tcp", "net/tcp6")
_PIDFD_GETFD: Final = 438  # of x86-64 and arm64
_OF_OTHERS: Final = (errno.EBADF, errno.ENOTSOCK, errno.EOPNOTSUPP, errno.ENOPROTOOPT)
"""It was closed meanwhile, and its number may be that of another file."""
_BYTES: Final = 248
# struct tcp_info in include/uapi/linux/tcp.h
_AT_RESENT: Final = 100
_AT_SENT: Final = 156
_AT_NEEDLESS: Final = 216  # since Linux 4.19

_libc = ctypes.CDLL(None, use_errno=True)


def tcp_connections(files: ProcFiles, pidfd: int) -> Mapping[int, TcpConnection] | None:
    """The connections of a process, by the inode of the socket; None if they can't be read."""
    names = files.names("fd")
    if len(names) > _MOST_DESCRIPTORS:
        return None
    links = ((name, _SOCKET.fullmatch(files.link(f"fd/{name}"))) for name in names)
    numbers = {int(link[1]): int(name) for name, link in links if link}
    connections = {}
    for table in _TABLES:
        for inode, file in internet_sockets(files.read(table), "tcp", numbers).items():
            if file.peer and not file.is_connecting:
                try:
                    info = _tcp_info(pidfd, numbers[inode])
                except OSError as error:
                    if error.errno in _OF_OTHERS:
                        continue
                    return None
                connections[inode] = counted_connection(file.local, file.peer, info)
    return connections


def _tcp_info(pidfd: int, number: int) -> bytes:
    """The counters of a socket of the process. Raises OSError."""
    copy = _checked(_libc.syscall(_PIDFD_GETFD, pidfd, number, 0))
    try:
        info, size = ctypes.create_string_buffer(_BYTES), ctypes.c_uint(_BYTES)
        level, name = socket.IPPROTO_TCP, socket.TCP_INFO
        _checked(_libc.getsockopt(copy, level, name, info, ctypes.byref(size)))
        return info.raw[: size.value]
    finally:
        os.close(copy)


def _checked(result: int) -> int:
    """The result of a system call. Raises OSError if it failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), "The counters of a connection can't be read")
    return result


def counted_connection(local: str, peer: str, info: bytes) -> TcpConnection:
    """A connection by its tcp_info. What an old kernel does not count is 0."""
    sent, resent, needless = (
        int.from_bytes(info[at : at + 4], "little") if len(info) >= at + 4 else 0
        for at in (_AT_SENT, _AT_RESENT, _AT_NEEDLESS)
    )
    return TcpConnection(local, peer, sent, resent, needless)
