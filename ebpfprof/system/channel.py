"""Messages between this process and its children: JSON in frames over a Unix socket.

A frame is two sizes, a message in JSON, and bytes that would be too large in JSON:

    u32 size of the message | u32 size of the bytes | message | bytes

Open files may come with a frame (SCM_RIGHTS). The result of work crosses as a message, too:
{"result": ...}, or an error that the other process raises again. A child may have parsed what a
target wrote, so sizes are bounded, and a frame names an error class but never a function.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ebpfprof import errors
from ebpfprof.system.closing import Closing
from ebpfprof.system.open_files import too_many

HEAD: Final = struct.Struct("<II")
MAX_MESSAGE_BYTES: Final = 64 << 20
MAX_DATA_BYTES: Final = 1 << 30
_FD: Final = struct.Struct("=i")
_MAX_FDS: Final = 64
_MAX_CHUNK: Final = 1 << 20
_OF_SYSTEM: Final = (OSError, FileNotFoundError, PermissionError, ProcessLookupError)
_ERRORS: Final[dict[str, type[Exception]]] = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.EbpfprofError)
} | {error.__name__: error for error in _OF_SYSTEM}
"""The errors that cross by their names; an OSError with a number crosses by that."""


class ChannelError(Exception):
    """The other process has ended or closed its end, or it sent something that is not a frame."""


class ChildFailedError(RuntimeError):
    """Work in the other process raised an error that is not for users: a bug."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message, the file descriptors that came with it (the receiver's to close), and bytes."""

    message: Any = None
    fds: Sequence[int] = ()
    data: bytes = b""


Handler = Callable[..., Frame | None]
"""Does one kind of request, given its file descriptors and its arguments by name.

Returns the result as a frame, None for no result.
"""


class MessageChannel(Closing):
    """One end of a connection between two processes.

    One thread at a time may send, and one may receive.
    """

    def __init__(self, connection: socket.socket, other: str) -> None:
        """The end that is `connection`; `other` names the other process in messages."""
        self._socket = connection
        self._other = other

    @classmethod
    def pair(cls, other: str) -> tuple[MessageChannel, socket.socket]:
        """A new connection: our end, and the one for the process called `other`."""
        ours, theirs = socket.socketpair()
        return cls(ours, other), theirs

    @classmethod
    def to_parent(cls, fd: int) -> MessageChannel:
        """The end of a child, which it got as the file descriptor `fd`."""
        return cls(socket.socket(fileno=fd), "ebpfprof")

    def fileno(self) -> int:
        """The socket's file descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end. May be called twice."""
        self._socket.close()

    def has_frame(self) -> bool:
        """Whether receive() would not wait."""
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        return bool(readable.poll(0))

    def send(self, message: object, fds: Sequence[int] = (), data: bytes = b"") -> None:
        """Send a message. Raises ChannelError if the other end is closed."""
        frame = framed(message, len(data))
        try:
            sent = socket.send_fds(self._socket, [frame], fds)
            # Not even an empty rest: the other end may have read the frame, and closed.
            if rest := frame[sent:]:
                self._socket.sendall(rest)
            if data:
                self._socket.sendall(data)
        except OSError as error:
            raise ChannelError(f"{self._other} has ended.") from error

    def receive(self) -> Frame:
        """Wait for a frame without bytes. Raises ChannelError, also if the frame is too large."""
        fds: list[int] = []
        try:
            head, passed, _, _ = self._socket.recvmsg(
                HEAD.size, socket.CMSG_LEN(_MAX_FDS * _FD.size), socket.MSG_CMSG_CLOEXEC
            )
            fds = [fd for _, _, data in passed for (fd,) in _FD.iter_unpack(data)]
            message_bytes, _ = sizes(head + self._exactly(HEAD.size - len(head)))
            return Frame(message_of(self._exactly(message_bytes)), fds)
        except BaseException as error:  # Ctrl-C, too: nobody else closes the files
            _close(fds)
            if isinstance(error, OSError | EOFError):
                raise ChannelError(f"{self._other} has ended.") from error
            raise

    def ask(self, request: str, fds: Sequence[int] = (), **arguments: object) -> Frame:
        """Have answer() of the other process do a request; returns its result.

        Raises ChannelError, or what the work raised: see result().
        """
        self.send({"request": request, "arguments": arguments}, fds)
        return self.result()

    def answer(self, handlers: Mapping[str, Handler]) -> bool:
        """Wait for a request of ask(), do it, and send the result; False if the other has ended."""
        try:
            frame = self.receive()
        except ChannelError:
            return False
        request, arguments = frame.message["request"], frame.message["arguments"]
        with suppress(ChannelError):  # the next call says that the other has ended
            try:
                done = handlers[request](frame.fds, **arguments) or Frame()
            except Exception as error:  # any error: ask() raises it
                self.send_failure(error)
            else:
                self.send_result(done)
        return True

    def result(self) -> Frame:
        """Wait for the result of work in the other process.

        Raises what the work raised: an EbpfprofError or OSError, ChildFailedError for any other
        exception; or ChannelError.
        """
        frame = self.receive()
        try:
            return Frame(result_of(frame.message, self._other), frame.fds)
        except BaseException:  # nobody else closes the files
            _close(frame.fds)
            raise

    def send_result(self, result: Frame) -> None:
        """Send the result of work, as result() of the other process expects it; see send()."""
        self.send({"result": result.message}, result.fds, result.data)

    def send_failure(self, error: Exception) -> None:
        """Send why work failed; see send_result()."""
        self.send(failure(error))

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(min(size - len(received), _MAX_CHUNK))
            if not chunk:
                raise EOFError
            received += chunk
        return bytes(received)


def framed(message: object, data_bytes: int = 0) -> bytes:
    """The frame of a message, up to its bytes, of which there are `data_bytes`."""
    text = json.dumps(message).encode()
    return HEAD.pack(len(text), data_bytes) + text


def sizes(head: bytes, max_data_bytes: int = 0) -> tuple[int, int]:
    """How long the message and the bytes of a frame are. Raises ChannelError if they are longer."""
    message_bytes, data_bytes = HEAD.unpack(head)
    if message_bytes > MAX_MESSAGE_BYTES or data_bytes > max_data_bytes:
        raise ChannelError(f"A frame is too large: {message_bytes} and {data_bytes} bytes.")
    return message_bytes, data_bytes


def message_of(text: bytes) -> Any:  # noqa: ANN401 - JSON
    """The message in a frame. Raises ChannelError if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ChannelError("A message is not JSON.") from error


def failure(error: Exception) -> dict[str, Any]:
    """The message that raises this error in the other process: see result_of()."""
    if isinstance(error, OSError) and error.errno is not None:
        return {"errno": error.errno, "message": error.strerror or ""}
    error = too_many(error) or error
    for base in type(error).__mro__:
        if base.__name__ in _ERRORS:
            return {"error": base.__name__, "message": str(error)}
    return {"bug": repr(error)}  # nothing else would show it


def result_of(message: Any, other: str) -> Any:  # noqa: ANN401 - JSON
    """The result in a message of the process called `other`. Raises what it says was raised."""
    match message:
        case {"result": result}:
            return result
        case {"error": str(name), "message": str(sentence)} if name in _ERRORS:
            raise _ERRORS[name](sentence)
        case {"errno": int(number), "message": str(text)}:
            raise OSError(number, text)
        case {"bug": str(text)}:
            raise ChildFailedError(f"{other} failed: {text}.")
    raise ChannelError(f"{other} sent a message without a result.")


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
