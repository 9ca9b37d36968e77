"""The files behind waits of the network poller, as the kernel knew them at the first wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ebpfprof.kernel import c_facts
from ebpfprof.kernel.btf import field_offsets
from ebpfprof.process.descriptors import address_text
from ebpfprof.profile.waiting_for import FileWait, OpenFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from ebpfprof.process.descriptors import Descriptors

MOST_FILES: Final = 1 << 14
"""The files that were waited for last; each takes about 150 bytes."""
_SOURCE: Final = "trace/polled_files.h"
_TYPE, _SOCKET, _PIPE, _UNIX, _INTERNET, _INTERNET_6 = (
    c_facts.number(_SOURCE, name)
    for name in (
        *("FILE_TYPE", "FILE_IS_SOCKET", "FILE_IS_PIPE"),
        *("FAMILY_UNIX", "FAMILY_INTERNET", "FAMILY_INTERNET_6"),
    )
)
# include/uapi/linux/in.h; the third is MPTCP, which Go 1.24 and newer listen for.
_PROTOCOLS: Final = {6: "tcp", 17: "udp", 262: "tcp"}
_LISTEN: Final = 10  # include/net/tcp_states.h
_FIELDS: Final = {
    "TASK_FILES": ("task_struct", "files"),
    "FILES_TABLE": ("files_struct", "fdt"),
    "TABLE_SIZE": ("fdtable", "max_fds"),
    "TABLE_FILES": ("fdtable", "fd"),
    "FILE_INODE": ("file", "f_inode"),
    "FILE_PRIVATE": ("file", "private_data"),
    "INODE_MODE": ("inode", "i_mode"),
    "INODE_NUMBER": ("inode", "i_ino"),
    "SOCKET_SOCK": ("socket", "sk"),
    "SOCK_FAMILY": ("sock_common", "skc_family"),
    "SOCK_STATE": ("sock_common", "skc_state"),
    "SOCK_LOCAL_PORT": ("sock_common", "skc_num"),
    "SOCK_PEER_PORT": ("sock_common", "skc_dport"),
    "SOCK_LOCAL": ("sock_common", "skc_rcv_saddr"),
    "SOCK_PEER": ("sock_common", "skc_daddr"),
    "SOCK_LOCAL_6": ("sock_common", "skc_v6_rcv_saddr"),
    "SOCK_PEER_6": ("sock_common", "skc_v6_daddr"),
    "SOCK_PROTOCOL": ("sock", "sk_protocol"),
}
"""A struct sock begins with its struct sock_common (include/net/sock.h)."""
FILE_OFFSETS: Final = tuple(_FIELDS)
"""The names in the C of the offsets of file_offsets()."""


def file_offsets() -> dict[str, int]:
    """The offsets that the program needs, by their FILE_OFFSETS. Raises KernelUnsupported."""
    return dict(zip(_FIELDS, field_offsets(*_FIELDS.values()), strict=True))


def polled_files(
    keys: npt.NDArray[Any], rows: npt.NDArray[Any], descriptors: Descriptors
) -> dict[int, FileWait]:
    """What goroutines waited for by key, of rows of struct polled_file.

    Unix sockets that were closed meanwhile have no path.
    """
    is_unix = (rows["mode"] & _TYPE == _SOCKET) & (rows["family"] == _UNIX)
    inodes = set(rows["inode"][is_unix].tolist())
    unix = descriptors.unix_sockets(inodes) if inodes else {}
    return dict(_waits(keys, rows, unix))


def _waits(
    keys: npt.NDArray[Any], rows: npt.NDArray[Any], unix: dict[int, OpenFile]
) -> Iterator[tuple[int, FileWait]]:
    for key, row in zip(keys.tolist(), rows, strict=True):
        fd = int(row["fd"])
        match int(row["mode"]) & _TYPE:
            case kind if kind == _SOCKET:
                file = _socket(row, fd, unix)
            case kind if kind == _PIPE:
                file = OpenFile(fd, "pipe")
            case _:
                file = OpenFile(fd, "file")
        yield key, FileWait(file, is_write=bool(row["is_write"]))


def _socket(row: np.void, fd: int, unix: dict[int, OpenFile]) -> OpenFile:
    family = int(row["family"])
    if family == _UNIX:
        known = unix.get(int(row["inode"]), OpenFile(0, "unix"))
        return OpenFile(fd, "unix", path=known.path, is_listener=known.is_listener)
    kind = _PROTOCOLS.get(int(row["protocol"]), "")
    if family not in (_INTERNET, _INTERNET_6) or not kind:
        return OpenFile(fd, "socket")
    size = 4 if family == _INTERNET else 16
    local, peer = (bytes(row[name].tolist()[:size]) for name in ("local", "peer"))
    peer_port = int.from_bytes(int(row["peer_port"]).to_bytes(2, "little"), "big")
    return OpenFile(
        fd,
        kind,
        local=address_text(local, int(row["local_port"])),
        peer=address_text(peer, peer_port) if peer_port else "",
        is_listener=kind == "tcp" and int(row["state"]) == _LISTEN,
    )
