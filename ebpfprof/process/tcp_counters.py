"""What the kernel counted for the TCP connections of a process, by sock_diag(7).

The kernel answers for a network namespace. A thread of its own enters that of the process, and ends
there.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from ebpfprof.process.descriptors import address_text
from ebpfprof.profile.connections import TcpConnection

if TYPE_CHECKING:
    from ebpfprof.process.proc_files import ProcFiles

_MOST_DESCRIPTORS: Final = 8192
_MOST_SOCKETS: Final = 65_536
"""Of a network namespace: to read more takes too long."""
_TIMEOUT_S: Final = 1.0
_BUFFER_BYTES: Final = 1 << 18
_SOCKET: Final = re.compile(r"socket:\[(\d{1,20})\]")
# include/uapi/linux/netlink.h, sock_diag.h and inet_diag.h
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_ASK_FOR_ALL: Final = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBxI48x")
_ERROR, _DONE = 2, 3
_INFO: Final = 2  # INET_DIAG_INFO
_ADDRESSES: Final = struct.Struct(">HH16s16s")
_AT_ADDRESSES: Final = 4
_AT_INODE: Final = 68
_MESSAGE_BYTES: Final = 72
_ATTRIBUTE: Final = struct.Struct("=HH")
# include/net/tcp_states.h
_ESTABLISHED: Final = 1
# struct tcp_info in include/uapi/linux/tcp.h
_AT_RESENT: Final = 100
_AT_SENT: Final = 156
_AT_NEEDLESS: Final = 216  # since Linux 4.19
_CLONE_NEWNET: Final = 0x40000000


def tcp_connections(files: ProcFiles) -> Mapping[int, TcpConnection] | None:
    """The connections of a process, by the inode of the socket; None if they can't be read."""
    names = files.names("fd")
    if len(names) > _MOST_DESCRIPTORS:
        return None
    links = (_SOCKET.fullmatch(files.link(f"fd/{name}")) for name in names)
    inodes = {int(link[1]) for link in links if link}
    if not inodes:
        return {}
    try:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_asked, files, inodes).result()
    except OSError:
        return None


def _asked(files: ProcFiles, inodes: set[int]) -> dict[int, TcpConnection] | None:
    """Ask the kernel, in the network namespace of the process. Raises OSError."""
    if files.link("ns/net") != os.readlink("/proc/thread-self/ns/net"):
        _enter(files)
    connections: dict[int, TcpConnection] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        for number, message in enumerate(_dump(family)):
            if number >= _MOST_SOCKETS:
                return None
            connections |= connections_in(message, inodes)
    return connections


def _enter(files: ProcFiles) -> None:
    """Have this thread enter the network namespace of the process. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = files.descriptor("ns/net")
    try:
        if libc.setns(namespace, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "its network namespace can't be entered")
    finally:
        os.close(namespace)


def _dump(family: int) -> Iterator[bytes]:
    """The messages of the kernel on the connections of a family. Raises OSError."""
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 1 << _ESTABLISHED)
    header = _HEADER.pack(
        _HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _ASK_FOR_ALL, family, 0
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_TIMEOUT_S)
        kernel.send(header + request)
        while True:
            for kind, message in messages(kernel.recv(_BUFFER_BYTES)):
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    raise OSError("The kernel does not report connections.")
                yield message


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The messages in what a netlink socket received: their types and contents (netlink(7))."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def connections_in(message: bytes, inodes: set[int]) -> dict[int, TcpConnection]:
    """The connection in a message, by its inode, if it is one of these.

    Linux net/ipv4/inet_diag.c, inet_sk_diag_fill.
    """
    if len(message) < _MESSAGE_BYTES:
        return {}
    (inode,) = struct.unpack_from("=I", message, _AT_INODE)
    info = _attribute(message, _INFO)
    if inode not in inodes or len(info) < _AT_SENT + 4:
        return {}
    local_port, peer_port, local, peer = _ADDRESSES.unpack_from(message, _AT_ADDRESSES)
    size = 16 if message[0] == socket.AF_INET6 else 4
    return {
        inode: TcpConnection(
            address_text(local[:size], local_port),
            address_text(peer[:size], peer_port),
            sent=_number(info, _AT_SENT),
            resent=_number(info, _AT_RESENT),
            needless=_number(info, _AT_NEEDLESS),
        )
    }


def _attribute(message: bytes, wanted: int) -> bytes:
    """The content of an attribute; nothing if the message has none of this type."""
    at = _MESSAGE_BYTES
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if length < _ATTRIBUTE.size:
            break
        if kind == wanted:
            return message[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    return b""


def _number(info: bytes, at: int) -> int:
    """A counter of tcp_info; 0 if the kernel is too old to have it."""
    return int.from_bytes(info[at : at + 4], "little") if len(info) >= at + 4 else 0
