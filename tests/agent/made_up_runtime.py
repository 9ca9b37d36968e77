"""A container runtime that answers what the test says, also as none should; or another program.

with MadeUpRuntime(folder, {"Version": VERSION, ...}) as runtime:
    ... runtime.socket
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, StreamEnded
from h2.exceptions import ProtocolError

from ebpfprof.agent.identity.cri import message_class
from tests.agent.cri_messages import pairs
from tests.targets_run import DEADLINE_S

Answer = Callable[[H2Connection, int], None]
"""What answers a call: it is given the connection and the stream."""
_HEADERS: Final = [(":status", "200"), ("content-type", "application/grpc")]


def message(data: bytes, flag: int = 0) -> bytes:
    """A message as gRPC frames it."""
    return struct.pack(">BI", flag, len(data)) + data


def said(data: bytes) -> Answer:
    """An answer with these bytes, and success."""

    def answer(connection: H2Connection, stream: int) -> None:
        connection.send_headers(stream, _HEADERS)
        for at in range(0, len(data), 16_000):  # the window of a stream is larger than all
            connection.send_data(stream, data[at : at + 16_000])
        connection.send_headers(stream, [("grpc-status", "0")], end_stream=True)

    return answer


def refused(status: str, text: str, http: str = "200") -> Answer:
    """An answer without a message."""

    def answer(connection: H2Connection, stream: int) -> None:
        headers = [(":status", http), ("grpc-status", status), ("grpc-message", text)]
        connection.send_headers(stream, headers, end_stream=True)

    return answer


def hang(_connection: H2Connection, _stream: int) -> None:
    """No answer."""


def reset(connection: H2Connection, stream: int) -> None:
    """The call is broken off."""
    connection.reset_stream(stream)


def goodbye(connection: H2Connection, _stream: int) -> None:
    """The connection is ended."""
    connection.close_connection()


def version(name: str = "made-up", number: str = "7") -> bytes:
    """A VersionResponse."""
    made = message_class("VersionResponse")(
        runtime_name=name.encode(), runtime_version=number.encode()
    )
    return bytes(made.SerializeToString())


def sandboxes(*pods: Mapping[str, Any]) -> bytes:
    """A ListPodSandboxResponse of pods with id, name, namespace, uid, labels, annotations."""
    made = message_class("ListPodSandboxResponse")()
    for pod in pods:
        item = made.items.add(id=pod["id"].encode())
        for field in ("name", "namespace", "uid"):
            setattr(item.metadata, field, pod[field].encode())
        for field in ("labels", "annotations"):
            for pair in pairs(pod.get(field, {})):
                getattr(item, field).add(key=pair.key, value=pair.value)
    return bytes(made.SerializeToString())


def containers(*found: tuple[str, str, str]) -> bytes:
    """A ListContainersResponse of ids of containers, their sandboxes, and names."""
    made = message_class("ListContainersResponse")()
    for identity, sandbox, name in found:
        item = made.containers.add(id=identity.encode(), pod_sandbox_id=sandbox.encode())
        item.metadata.name = name.encode()
    return bytes(made.SerializeToString())


def sent(answer: Answer) -> bytes:
    """All that goes to a client whose only call is answered so."""
    client, server = H2Connection(), H2Connection(H2Configuration(client_side=False))
    client.initiate_connection()
    headers = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "x")]
    client.send_headers(1, headers, end_stream=True)
    server.initiate_connection()
    server.receive_data(client.data_to_send())
    answer(server, 1)
    return bytes(server.data_to_send())


class MadeUpRuntime:
    """A context manager. `raw` is what goes to each client in place of HTTP/2, again and again."""

    def __init__(
        self, folder: Path, answers: Mapping[str, Answer] | None = None, raw: bytes | None = None
    ) -> None:
        self.socket = str(folder / "runtime.sock")
        self.answers = dict(answers or {})
        self.asked: list[str] = []
        self._raw = raw
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.socket)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed: the test is over
            while True:
                client, _ = self._listener.accept()
                client.settimeout(DEADLINE_S)
                serve = self._serve if self._raw is None else self._speak
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    def _speak(self, client: socket.socket) -> None:
        with suppress(OSError), client:  # who asked has heard enough
            client.recv(1 << 16)
            while self._raw:
                client.sendall(self._raw)

    def _serve(self, client: socket.socket) -> None:
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        methods: dict[int, str] = {}
        # Who asked may speak on after an answer that ends the connection.
        with suppress(OSError, ProtocolError), client:
            client.sendall(connection.data_to_send())
            while data := client.recv(1 << 16):
                for event in connection.receive_data(data):
                    if isinstance(event, RequestReceived):
                        path = dict(event.headers)[":path"]
                        methods[event.stream_id] = path.removeprefix("/runtime.v1.RuntimeService/")
                    elif isinstance(event, StreamEnded):
                        method = methods[event.stream_id]
                        self.asked.append(method)
                        self.answers[method](connection, event.stream_id)
                client.sendall(connection.data_to_send())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # it may be closed
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
