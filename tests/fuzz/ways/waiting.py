"""Ways in through what /proc shows of a target's files, sockets and threads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from ebpfprof.console.text import printable
from ebpfprof.export.tables import waiting_for
from ebpfprof.process.descriptors import internet_sockets, polled_by, unix_sockets
from ebpfprof.process.system_calls import arguments_of, name_of
from ebpfprof.process.threads import state_of
from ebpfprof.profile.waiting_for import FileWait, SystemCall, ThreadWait, WaitsFor
from tests.fuzz.driver import Parser
from tests.fuzz.ways.made_up import CALLS

_INODE: Final = 29123
_TCP: Final = b"""\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 29123 1
   1: 0100007F:1F90 0200000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 29124 1
"""
_TCP6: Final = b"""\
  sl  local_address                         remote_address                        st tx_queue
   0: 0000000000000000FFFF00000100007F:1F90 B80D0120000000000000000001000000:C350 02 0:0 00:0 0 0 \
0 29123 1
"""
_UNIX: Final = b"""\
Num       RefCount Protocol Flags    Type St Inode Path
ffff8881: 00000002 00000000 00010000 0001 01 29123 /run/\xff\x1b[2J x.sock
ffff8882: 00000003 00000000 00000000 0001 03 29124
"""
_POLLED: Final = b"""\
pos:\t0
flags:\t02000002
tfd:        5 events: 80002019 data: e2f5d07100000001  pos:0 ino:1c85 sdev:9
tfd:        3 events: 80002019 data:     c000001000  pos:0 ino:1c86 sdev:9
"""


@cache
def socket_seeds() -> Sequence[bytes]:
    return b"0" + _TCP, b"1" + _TCP6, b"2" + _UNIX, b"3" + _POLLED


def ask_sockets(data: bytes) -> None:
    number, text = data[:1], data[1:]
    wanted = {_INODE, _INODE + 1}
    if number == b"3":
        for fd, word in polled_by(text):
            assert 0 <= fd < 1 << 34
            assert 0 <= word < 1 << 64
        return
    if number == b"2":
        found = unix_sockets(text, wanted)
    else:
        found = internet_sockets(text, "tcp" if number == b"0" else "udp", wanted)
    assert found.keys() <= wanted
    waits = [WaitsFor(file_wait=FileWait(file, is_write=True)) for file in found.values()]
    for some in (waits, waits[:1]):
        assert all(printable(line).isprintable() for line in waiting_for.lines(some))
    assert all(waiting_for.as_json(wait) for wait in waits)


def call_seeds() -> Sequence[bytes]:
    return CALLS


def ask_calls(data: bytes) -> None:
    state = state_of(data)
    if state is None:
        return
    assert len(state.arguments) in (0, 6)
    assert name_of(state.number)
    call = SystemCall(
        state.number,
        name_of(state.number),
        tuple(zip(arguments_of(state.number), state.arguments, strict=False)),
    )
    waits = WaitsFor(thread=ThreadWait(7, state.runs, None if state.runs else call))
    for some in ([waits], [waits] * 2):
        assert all(line.isprintable() for line in waiting_for.lines(some))
    assert waiting_for.as_json(waits)


WAITING: Final = (
    Parser("sockets", ("ebpfprof.process.descriptors",), ask_sockets, socket_seeds),
    Parser(
        "thread-calls",
        ("ebpfprof.process.threads", "ebpfprof.process.system_calls"),
        ask_calls,
        call_seeds,
    ),
)
