"""Unary gRPC calls over a unix socket. Needs h2, an optional dependency.

The program at the socket may be any program, may hang, or may send without end. So all calls of a
connection share one deadline, and each response has a size limit. h2 is imported on demand.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote_to_bytes

from ebpfprof.console.text import printable

NO_H2: Final = (
    "needs the Python package h2: apt-get install python3-h2, or install ebpfprof[cri] instead of "
    "ebpfprof"
)
_PREFIX: Final = struct.Struct(">BI")
"""Before a message: whether it is compressed, and its length (gRPC over HTTP2, PROTOCOL-HTTP2)."""
_FRAME: Final = struct.Struct(">3sBBI")
"""Before a frame of HTTP/2: its length, type, flags and stream (RFC 9113, 4.1)."""
_SETTINGS: Final = 4
"""The type of the first frame (3.4)."""
_NO_HTTP2: Final = "it does not speak HTTP/2"
_PIECE: Final = 64 << 10
_MAX_SHOWN: Final = 200
UNIMPLEMENTED: Final = "12"
"""The status of a server without the method."""
_NAMES: Final = {"4": "DEADLINE_EXCEEDED", "7": "PERMISSION_DENIED", UNIMPLEMENTED: "UNIMPLEMENTED"}


class CallError(Exception):
    """A call failed: the end of a sentence, and the `status` of gRPC, if there is one."""

    def __init__(self, sentence: str, status: str = "") -> None:
        super().__init__(sentence)
        self.status = status


def has_h2() -> bool:
    """Whether h2 is installed."""
    return find_spec("h2") is not None


class UnaryCalls:
    """The client's side of a connection, without its socket. Calls follow each other.

    Methods that take bytes of the server raise CallError.
    """

    def __init__(self, most_bytes: int) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection

        self._most_bytes = most_bytes
        self._connection = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._connection.initiate_connection()
        self._stream = 0
        self._data = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._first = b""

    def begin(self, method: str, message: bytes) -> None:
        """Begin the call of a method, as /PACKAGE.SERVICE/METHOD; `message` must be small."""
        self._data.clear()
        self._headers.clear()
        self._stream = self._connection.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        self._connection.send_headers(self._stream, headers)
        framed = _PREFIX.pack(0, len(message)) + message
        self._connection.send_data(self._stream, framed, end_stream=True)

    def to_send(self) -> bytes:
        """The bytes to send to the server now; may be empty."""
        return bytes(self._connection.data_to_send())

    def take(self, data: bytes) -> bytes | None:
        """Take bytes of the server; returns the response once it is complete."""
        from h2.exceptions import H2Error

        self._require_http2(data)
        try:
            events = self._connection.receive_data(data)
            ended = [self._note(event) for event in events]
        except H2Error as error:
            raise CallError(f"{_NO_HTTP2}: {_shown(error)}") from None
        return self._answer() if any(ended) else None

    def _require_http2(self, data: bytes) -> None:
        """Check the first frame: h2 would take another protocol for a very long frame."""
        self._first += data[: _FRAME.size - len(self._first)]
        if len(self._first) == _FRAME.size and self._first[3] != _SETTINGS:
            raise CallError(f"{_NO_HTTP2}: it begins with {_shown(self._first)}")

    def _note(self, event: Any) -> bool:  # noqa: ANN401 - h2's events, which are not typed
        """Process an event; returns whether the call ended."""
        from h2 import events

        if isinstance(event, events.ConnectionTerminated):
            raise CallError("it closed the HTTP/2 connection")
        if getattr(event, "stream_id", None) != self._stream:
            return False
        if isinstance(event, events.DataReceived):
            self._data += event.data
            if len(self._data) > self._most_bytes + _PREFIX.size:
                raise CallError(f"the response is longer than {self._most_bytes >> 20} MiB")
            self._connection.acknowledge_received_data(event.flow_controlled_length, self._stream)
        elif isinstance(event, events.ResponseReceived | events.TrailersReceived):
            self._headers.update(event.headers)
        elif isinstance(event, events.StreamReset):
            raise CallError("it aborted the call")
        return isinstance(event, events.StreamEnded)

    def _answer(self) -> bytes:
        if self._headers.get(b":status") != b"200":
            raise CallError("it speaks HTTP/2, but not gRPC")
        status = self._headers.get(b"grpc-status", b"").decode("ascii", "replace")
        if status != "0":
            text = unquote_to_bytes(self._headers.get(b"grpc-message", b""))
            name = _NAMES.get(status, status or "no status")
            said = _shown(text.decode(errors="replace"))
            raise CallError(f"it refused the call ({_shown(name)}): {said}", status)
        if len(self._data) < _PREFIX.size:
            raise CallError("the response has no message")
        is_compressed, size = _PREFIX.unpack_from(self._data)
        if is_compressed or size != len(self._data) - _PREFIX.size:
            raise CallError("the response is not one complete message")
        return bytes(self._data[_PREFIX.size :])


class CallSocket:
    """A connection to a unix socket for calls with a common deadline. A context manager.

    All methods raise CallError.
    """

    def __init__(
        self,
        path: str,
        *,
        timeout_s: float,
        most_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not has_h2():
            raise CallError(f"it {NO_H2}")
        self._until_s, self._timeout_s, self._clock = clock() + timeout_s, timeout_s, clock
        self._calls = UnaryCalls(most_bytes)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._wait_at_most()
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise self._problem(error) from None

    def call(self, method: str, message: bytes) -> bytes:
        """The message of the response."""
        self._calls.begin(method, message)
        try:
            while True:
                self._wait_at_most()
                self._socket.sendall(self._calls.to_send())
                data = self._socket.recv(_PIECE)
                if not data:
                    raise CallError("it closed the connection")
                if (answer := self._calls.take(data)) is not None:
                    return answer
        except OSError as error:
            raise self._problem(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def _wait_at_most(self) -> None:
        """Set the timeout of the next operation to the remaining time."""
        left_s = self._until_s - self._clock()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)

    def _problem(self, error: OSError) -> CallError:
        if isinstance(error, TimeoutError):
            return CallError(f"it did not respond within {self._timeout_s:g} s")
        return CallError(
            error.strerror or os.strerror(error.errno or 0) if error.errno else _shown(error)
        )


def _shown(said: object) -> str:
    """The text of another program, for a log: short and printable."""
    text = printable(" ".join(str(said).split()))
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
