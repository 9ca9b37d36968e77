"""What TCP counts for connections, of a process on a network that loses packets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ebpfprof.process.proc_files import ProcFiles
from ebpfprof.process.tcp_counters import tcp_connections
from tests.faults.environment import Environment, running

_PORT: Final = 7000
_BYTES: Final = 4 << 20
# It sends bytes to itself, and says what the kernel reports of its own socket: tcp_info.
_PROGRAM: Final = """
import socket, struct, sys, threading
port, size = map(int, sys.argv[1:])
server = socket.create_server(("127.0.0.1", port))
client = socket.create_connection(("127.0.0.1", port))
accepted, _ = server.accept()
def read():
    left = size
    while left:
        left -= len(accepted.recv(1 << 16))
    accepted.send(b"!")
threading.Thread(target=read).start()
client.sendall(bytes(size))
client.recv(1)
info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 248)
resent, sent, needless = (struct.unpack_from("=I", info, at)[0] for at in (100, 156, 216))
print("ready", sent, resent, needless, flush=True)
sys.stdin.read()
"""


@contextmanager
def opened(pid: int) -> Iterator[int]:
    """The pidfd of a process."""
    pidfd = os.pidfd_open(pid)
    try:
        yield pidfd
    finally:
        os.close(pidfd)


def test_the_counters_are_those_of_the_socket_in_its_own_network() -> None:
    environment = Environment(has_own_network=True, loss=0.05, lossy_ports=(_PORT,))
    arguments = ("-c", _PROGRAM, str(_PORT), str(_BYTES))
    with running(Path(sys.executable), *arguments, environment=environment) as target:
        _, *numbers = target.output[-1].split()
        with opened(target.pid) as pidfd:
            connections = tcp_connections(ProcFiles(target.pid), pidfd)
    assert connections is not None
    client, accepted = sorted(connections.values(), key=lambda one: one.local.endswith(f":{_PORT}"))
    assert client.peer == accepted.local == f"127.0.0.1:{_PORT}"
    assert client.local == accepted.peer
    assert [client.sent, client.resent, client.needless] == list(map(int, numbers))
    assert 0 < client.lost < client.sent / 4
