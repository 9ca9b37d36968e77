"""The answers of the kernel on TCP connections (sock_diag(7)), and what is cut off or absurd."""

from __future__ import annotations

import socket
import struct

from ebpfprof.process.tcp_counters import connections_in, messages
from ebpfprof.profile.connections import TcpConnection

INFO = 2
INODE = 77


def info(*, sent: int, resent: int, needless: int, size: int = 248) -> bytes:
    """A struct tcp_info."""
    text = bytearray(size)
    for at, value in ((100, resent), (156, sent), (216, needless)):
        text[at : at + 4] = struct.pack("=I", value)
    return bytes(text[:size])


def message(content: bytes, *, family: int = socket.AF_INET, inode: int = INODE) -> bytes:
    """A struct inet_diag_msg with a short attribute and the one that is wanted."""
    local, peer = ("10.0.0.1", "10.0.0.7") if family == socket.AF_INET else ("::1", "2001:db8::7")
    ends = b"".join(socket.inet_pton(family, end).ljust(16, b"\0") for end in (local, peer))
    head = struct.pack(">BBBBHH", family, 1, 0, 0, 8080, 50000) + ends
    head = head.ljust(68, b"\0") + struct.pack("=I", inode)
    other = struct.pack("=HH", 5, 8) + b"\1\0\0\0"
    return head + other + struct.pack("=HH", 4 + len(content), INFO) + content


def test_a_connection_and_its_counters() -> None:
    text = message(info(sent=500, resent=9, needless=2))
    connection = TcpConnection("10.0.0.1:8080", "10.0.0.7:50000", 500, 9, 2)
    assert connections_in(text, {INODE}) == {INODE: connection}
    assert connection.lost == 7
    assert connections_in(text, {INODE + 1}) == {}


def test_an_address_of_version_6() -> None:
    text = message(info(sent=1, resent=0, needless=0), family=socket.AF_INET6)
    (connection,) = connections_in(text, {INODE}).values()
    assert (connection.local, connection.peer) == ("[::1]:8080", "[2001:db8::7]:50000")


def test_an_old_kernel_does_not_count_needless_ones() -> None:
    (connection,) = connections_in(
        message(info(sent=500, resent=9, needless=2, size=192)), {INODE}
    ).values()
    assert (connection.resent, connection.needless) == (9, 0)


def test_what_is_cut_off_has_no_connection() -> None:
    whole = message(info(sent=500, resent=9, needless=2))
    for length in range(len(whole) - 248 + 160):
        assert connections_in(whole[:length], {INODE}) == {}


def test_messages_of_netlink() -> None:
    data = b""
    for kind, content in ((20, b"abcde"), (20, b""), (3, b"\0\0\0\0")):
        data += struct.pack("=IHHII", 16 + len(content), kind, 0, 0, 0) + content
        data += b"\0" * (-len(data) % 4)
    assert list(messages(data)) == [(20, b"abcde"), (20, b""), (3, b"\0\0\0\0")]
    assert list(messages(b"\0" * 40)) == []
    assert list(messages(b"abc")) == []
