"""What the file descriptors of a process stand for, read from /proc.

Paths and names are chosen by the target: they are not fit for a terminal before printable().
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.waiting_for import OpenFile

if TYPE_CHECKING:
    from ebpfprof.process.proc_files import ProcFiles

_EPOLL: Final = "anon_inode:[eventpoll]"
_POLLED: Final = re.compile(
    rb"^tfd: {0,16}(\d{1,10}) events: {0,16}[0-9a-f]{1,8} {1,2}data: {0,16}([0-9a-f]{1,16}) ",
    re.MULTILINE,
)
# Without connections that are over: their inode is 0, and a busy machine has thousands of them.
_INTERNET_SOCKET: Final = re.compile(
    rb"^ *\d{1,10}: (\S{1,99}) (\S{1,99}) ([0-9A-F]{2})(?: +\S{1,99}){5} ([1-9]\d{0,19}) ",
    re.MULTILINE,
)
_SOCKET: Final = re.compile(r"socket:\[(\d{1,20})\]")
_PIPE: Final = re.compile(r"pipe:\[\d{1,20}\]")
_INTERNET: Final = ("tcp", "tcp6", "udp", "udp6")
_KINDS: Final = {stat.S_IFIFO: "pipe", stat.S_IFCHR: "device"}
# include/net/tcp_states.h
_SYN_SENT: Final = 2
_LISTEN: Final = 10
_ACCEPTS: Final = 0x10000  # include/linux/net.h, __SO_ACCEPTCON
_KNOWN_S: Final = 10.0
"""For how long a socket is not read again: /proc shows it only among all of its namespace."""


class Descriptors:
    """The file descriptors of a process, in its own network namespace.

    What this user may not read, or is gone, is unknown: nothing here raises.
    """

    def __init__(self, files: ProcFiles) -> None:
        self._files = files
        self._epoll = -1  # the last one that was asked for
        self._sockets: dict[int, OpenFile] = {}  # whose addresses stay the same, by inode
        self._forget_s = 0.0  # time.monotonic()

    def polled(self) -> Iterator[list[tuple[int, int]]]:
        """Yield for each epoll its descriptors, each with the data that epoll has for it.

        The one with which the last caller ended comes first.
        """
        first = self._epoll
        if first >= 0 and self._link(first) == _EPOLL:
            yield polled_by(self._files.read(f"fdinfo/{first}"))
        for number in sorted(int(name) for name in self._files.names("fd")):
            if number != first and self._link(number) == _EPOLL:
                self._epoll = number
                yield polled_by(self._files.read(f"fdinfo/{number}"))

    def files(self, numbers: Collection[int]) -> dict[int, OpenFile]:
        """What these descriptors stand for; the unknown ones are missing."""
        files: dict[int, OpenFile] = {}
        inodes: dict[int, int] = {}
        for number in numbers:
            link = self._link(number)
            if socket := _SOCKET.fullmatch(link):
                inodes[number] = int(socket[1])
                files[number] = OpenFile(number, "socket")
            elif _PIPE.fullmatch(link):
                files[number] = OpenFile(number, "pipe")
            elif link:
                kind = _KINDS.get(self._files.file_type(f"fd/{number}"), "file")
                files[number] = OpenFile(number, kind, path=link)
        if inodes:
            sockets = self._read_sockets(set(inodes.values()))
            for number, inode in inodes.items():
                if inode in sockets:
                    files[number] = replace(sockets[inode], fd=number)
        return files

    def unix_sockets(self, inodes: Collection[int]) -> dict[int, OpenFile]:
        """The unix sockets with these inodes that are open, with descriptor 0."""
        return unix_sockets(self._files.read("net/unix"), inodes)

    def _read_sockets(self, wanted: set[int]) -> dict[int, OpenFile]:
        """The sockets with these inodes, with descriptor 0."""
        now_s = time.monotonic()
        if now_s >= self._forget_s:
            self._sockets.clear()
            self._forget_s = now_s + _KNOWN_S
        sockets = {inode: self._sockets[inode] for inode in wanted if inode in self._sockets}
        for protocol in _INTERNET:
            if missing := wanted - sockets.keys():
                text = self._files.read(f"net/{protocol}")
                sockets |= internet_sockets(text, protocol[:3], missing)
        if missing := wanted - sockets.keys():
            sockets |= self.unix_sockets(missing)
        self._sockets.update(
            (inode, socket) for inode, socket in sockets.items() if _stays_as_it_is(socket)
        )
        return sockets

    def _link(self, number: int) -> str:
        return self._files.link(f"fd/{number}")


def _stays_as_it_is(socket: OpenFile) -> bool:
    """Whether a socket is connected, or has a name that it keeps."""
    has_name = bool(socket.peer or socket.path) and not socket.is_connecting
    return has_name or socket.is_listener


def polled_by(text: bytes) -> list[tuple[int, int]]:
    """The descriptors in the text of /proc/PID/fdinfo/FD of an epoll, with their data.

    Linux fs/eventpoll.c, ep_show_fdinfo.
    """
    return [(int(fd), int(data, 16)) for fd, data in _POLLED.findall(text)]


def internet_sockets(text: bytes, kind: str, wanted: Collection[int]) -> dict[int, OpenFile]:
    """The sockets in the text of /proc/PID/net/{tcp,tcp6,udp,udp6}, by inode, with descriptor 0.

    Linux net/ipv4/tcp_ipv4.c, get_tcp4_sock. Lines that make no sense are left out.
    """
    sockets: dict[int, OpenFile] = {}
    for local_address, peer_address, code, number in _INTERNET_SOCKET.findall(text):
        inode = int(number)
        if inode not in wanted:
            continue
        try:
            state = int(code, 16) if kind == "tcp" else 0
            local, peer = _address(local_address), _address(peer_address)
        except ValueError:
            continue
        sockets[inode] = OpenFile(
            0,
            kind,
            local=local,
            peer="" if _is_nowhere(peer_address) else peer,
            is_listener=state == _LISTEN,
            is_connecting=state == _SYN_SENT,
        )
    return sockets


def unix_sockets(text: bytes, wanted: Collection[int]) -> dict[int, OpenFile]:
    """The sockets in the text of /proc/PID/net/unix, by inode, with descriptor 0.

    Linux net/unix/af_unix.c, unix_seq_show. Lines that make no sense are left out.
    """
    sockets: dict[int, OpenFile] = {}
    for line in text.splitlines()[1:]:
        words = line.split(None, 7)
        try:
            inode = int(words[6])
            if inode not in wanted:
                continue
            accepts = bool(int(words[3], 16) & _ACCEPTS)
        except (IndexError, ValueError):
            continue
        path = os.fsdecode(words[7]) if len(words) > 7 else ""
        sockets[inode] = OpenFile(0, "unix", path=path, is_listener=accepts)
    return sockets


def _address(text: bytes) -> str:
    """An address as the kernel prints it: see address_text. May raise ValueError.

    Each group of four bytes is a number of this machine, lowest byte first.
    """
    host, _, port = text.partition(b":")
    groups = bytes.fromhex(host.decode("ascii", "replace"))
    packed = b"".join(groups[at : at + 4][::-1] for at in range(0, len(groups), 4))
    return address_text(packed, int(port, 16))


def address_text(packed: bytes, port: int) -> str:
    """An address with its port, as Go writes it: 10.0.0.1:80, [::1]:80, :80 for all addresses.

    `packed` are the 4 or 16 bytes of the address, else this raises ValueError.
    """
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if int(address) == 0:
        return f":{port}"
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def _is_nowhere(text: bytes) -> bool:
    return not text.strip(b"0:")
