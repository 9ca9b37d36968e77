"""Messages between processes: what crosses, and what is refused."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from ebpfprof.errors import AttachFailed, EbpfprofError, KernelUnsupported, TooManyFiles
from ebpfprof.system.channel import (
    HEAD,
    MAX_MESSAGE_BYTES,
    ChannelError,
    ChildFailedError,
    Frame,
    Handler,
    MessageChannel,
    failure,
    result_of,
)

LARGE = "ü" * (1 << 20)


@pytest.fixture
def ends() -> Iterator[tuple[MessageChannel, socket.socket]]:
    channel, theirs = MessageChannel.pair("the other")
    with channel, theirs:
        yield channel, theirs


class ClosedOnceRead(socket.socket):
    """A connection whose other end closes as soon as it has read a frame."""

    other: socket.socket

    def sendmsg(self, *arguments: Any) -> int:  # noqa: ANN401 - as socket
        sent = super().sendmsg(*arguments)
        self.other.recv(sent)
        self.other.close()
        return sent


def test_the_other_end_may_close_once_it_has_read_a_frame() -> None:
    ours, theirs = socket.socketpair()
    connection = ClosedOnceRead(fileno=ours.detach())
    connection.other = theirs
    with MessageChannel(connection, "the other") as channel:
        channel.send_result(Frame())
        with pytest.raises(ChannelError, match="the other has ended"):
            channel.send_result(Frame())


class SubError(KernelUnsupported):
    """Not in the table of errors, but its base is."""


def double(fds: Any, number: int) -> Frame:  # noqa: ANN401 - as Handler
    return Frame(2 * number)


def fail(fds: Any, kind: str) -> None:  # noqa: ANN401 - as Handler
    raise {
        "ours": SubError("Too old."),
        "system": FileNotFoundError(errno.ENOENT, "No such file"),
        "unnumbered": BlockingIOError("Not now"),
        "bug": KeyError("k"),
    }[kind]


def name_of(fds: Any) -> Frame:  # noqa: ANN401 - as Handler
    (fd,) = fds
    with open(fd, "rb"):
        return Frame(os.readlink(f"/proc/self/fd/{fd}"))


@pytest.fixture
def answered(ends: tuple[MessageChannel, socket.socket]) -> Iterator[MessageChannel]:
    """The end of who asks; the requests are answered in a thread."""
    channel, theirs = ends
    other = MessageChannel(theirs, "ebpfprof")
    handlers: dict[str, Handler] = {"double": double, "fail": fail, "name": name_of}

    def answer_all() -> None:
        while other.answer(handlers):
            pass

    thread = threading.Thread(target=answer_all)
    thread.start()
    yield channel
    channel.close()
    thread.join()


@pytest.mark.parametrize("message", [None, 7, "\ud800", [1, {"a": LARGE}]])
def test_a_message_arrives_as_it_was(message: object) -> None:
    ours, theirs = MessageChannel.pair("the other")
    with ours, MessageChannel(theirs, "ours") as other:
        sender = threading.Thread(target=ours.send, args=(message,))
        sender.start()
        assert other.receive() == Frame(message, [])
        sender.join()
        assert not other.has_frame()


def test_messages_that_follow_at_once_stay_apart() -> None:
    """Each is longer than what a connection takes at once."""
    ours, theirs = MessageChannel.pair("the other")

    def send() -> None:
        for message in (LARGE, 7, LARGE):
            ours.send(message)

    with ours, MessageChannel(theirs, "ours") as other:
        sender = threading.Thread(target=send)
        sender.start()
        assert [other.receive().message for _ in range(3)] == [LARGE, 7, LARGE]
        sender.join()


def test_open_files_cross_and_end_at_exec(ends: tuple[MessageChannel, socket.socket]) -> None:
    channel, theirs = ends
    reads, writes = os.pipe()
    channel.send("first", [reads, writes])
    channel.send("second")
    os.close(reads)
    os.close(writes)
    other = MessageChannel(theirs, "ours")
    first, second = other.receive(), other.receive()
    assert (first.message, second) == ("first", Frame("second", []))
    assert not any(os.get_inheritable(fd) for fd in first.fds)
    os.write(first.fds[1], b"x")
    assert os.read(first.fds[0], 1) == b"x"
    for fd in first.fds:
        os.close(fd)


def test_results_come_back(answered: MessageChannel) -> None:
    assert answered.ask("double", number=4) == Frame(8, [])
    with open("/dev/null", "rb") as file:
        assert answered.ask("name", [file.fileno()]).message == "/dev/null"


def test_an_error_is_raised_where_the_work_was_asked_for(answered: MessageChannel) -> None:
    with pytest.raises(KernelUnsupported, match=r"^Too old\.$"):
        answered.ask("fail", kind="ours")
    with pytest.raises(FileNotFoundError, match="No such file"):
        answered.ask("fail", kind="system")
    with pytest.raises(OSError, match=r"^Not now$"):
        answered.ask("fail", kind="unnumbered")
    with pytest.raises(ChildFailedError, match=r"^the other failed: KeyError\('k'\)\.$"):
        answered.ask("fail", kind="bug")
    with pytest.raises(ChildFailedError, match="KeyError"):
        answered.ask("a request that it does not know")
    assert answered.ask("double", number=1).message == 2


def test_the_limit_of_open_files_is_named() -> None:
    error = AttachFailed("It failed.")
    error.__cause__ = OSError(errno.EMFILE, "Too many open files")
    with pytest.raises(TooManyFiles):
        result_of(failure(error), "it")


@pytest.mark.parametrize(
    "message",
    [
        {},
        [],
        None,
        {"error": "SystemExit", "message": "x"},
        {"error": "AttachFailed", "message": 7},
        {"error": ["AttachFailed"], "message": "x"},
        {"errno": "7", "message": "x"},
        {"bug": {}},
    ],
)
def test_a_message_that_is_not_a_result_is_refused(message: object) -> None:
    with pytest.raises(ChannelError):
        result_of(message, "it")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x07\0\0",
        HEAD.pack(3, 0) + b"[1",
        HEAD.pack(3, 0) + b"[1,",
        HEAD.pack(2, 0) + b"\xff\xff",
        HEAD.pack(MAX_MESSAGE_BYTES + 1, 0) + b"[]",
        HEAD.pack(2, 1) + b"[]x",  # bytes are not for this end
        HEAD.pack(1 << 20, 0) + b"[" * (1 << 20),
        HEAD.pack(10_000, 0) + b"9" * 10_000,
    ],
)
def test_what_is_not_a_frame_is_refused(sent: bytes) -> None:
    ours, theirs = MessageChannel.pair("the other")

    def send() -> None:
        with theirs, suppress(ConnectionError):  # the other end is closed before all is sent
            theirs.sendall(sent)

    sender = threading.Thread(target=send)
    with ours:
        sender.start()
        with pytest.raises(ChannelError):
            ours.receive()
    sender.join()


def test_files_of_a_refused_frame_are_closed(ends: tuple[MessageChannel, socket.socket]) -> None:
    channel, theirs = ends
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(theirs, [HEAD.pack(1, 0) + b"x"], [0, 1, 2])
    with pytest.raises(ChannelError):
        channel.receive()
    error = json.dumps(failure(EbpfprofError("x"))).encode()
    socket.send_fds(theirs, [HEAD.pack(len(error), 0) + error], [0, 1, 2])
    with pytest.raises(EbpfprofError):
        channel.result()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_end_of_the_other_process_is_noticed() -> None:
    ours, theirs = MessageChannel.pair("the other")
    with ours:
        theirs.close()
        assert ours.has_frame()
        for use in (ours.receive, ours.result, lambda: ours.send(1)):
            with pytest.raises(ChannelError, match="the other has ended"):
                use()
        assert not ours.answer({})
