"""What is in the kernel's tcp_info, new or old."""

from __future__ import annotations

import struct

from ebpfprof.process.tcp_counters import counted_connection
from ebpfprof.profile.connections import TcpConnection

LOCAL, PEER = "10.0.0.1:8080", "10.0.0.7:50000"


def info(*, sent: int, resent: int, needless: int, size: int = 248) -> bytes:
    """A struct tcp_info."""
    text = bytearray(248)
    for at, value in ((100, resent), (156, sent), (216, needless)):
        text[at : at + 4] = struct.pack("=I", value)
    return bytes(text[:size])


def test_a_connection_has_its_counters() -> None:
    connection = counted_connection(LOCAL, PEER, info(sent=500, resent=9, needless=2))
    assert connection == TcpConnection(LOCAL, PEER, 500, 9, 2)
    assert connection.lost == 7


def test_an_old_kernel_does_not_count_all() -> None:
    old = counted_connection(LOCAL, PEER, info(sent=500, resent=9, needless=2, size=192))
    assert (old.sent, old.resent, old.needless) == (500, 9, 0)
    assert counted_connection(LOCAL, PEER, b"").sent == 0
    least = counted_connection(LOCAL, PEER, info(sent=500, resent=9, needless=2, size=160))
    assert (least.sent, least.resent, least.needless) == (500, 9, 0)


def test_what_is_absurd_is_no_negative_loss() -> None:
    assert counted_connection(LOCAL, PEER, info(sent=5, resent=1, needless=9)).lost == 0
