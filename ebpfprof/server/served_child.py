"""Another ebpfprof that serve starts for a task: execution traces, references.

A process of its own, because such a task takes much memory for a moment, and other requests would
wait for it. Messages are frames of ebpfprof.system.channel.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from ebpfprof.errors import EbpfprofError
from ebpfprof.privileges.capabilities import passed_on
from ebpfprof.system.channel import (
    HEAD,
    MAX_DATA_BYTES,
    ChannelError,
    framed,
    message_of,
    result_of,
    sizes,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


def command_of(verb: str) -> Sequence[str]:
    """The command line of one of commands.verb.INTERNAL_VERBS."""
    isolated = ["-I"] if sys.flags.isolated else []
    return [sys.executable, *isolated, "-m", "ebpfprof", verb]


class ServedChild:
    """An ebpfprof that works for us, with our rights. Belongs to one event loop."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        other: str,
    ) -> None:
        """See start()."""
        self._process, self._reader, self._writer = process, reader, writer
        self._other = other
        self.error: Exception | None = None
        """Why it failed, once frames() has ended."""

    @classmethod
    async def start(cls, command: Sequence[str], request: dict[str, Any], other: str) -> Self:
        """Start it, and send it what to do. `other` names it in messages. Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            with theirs, passed_on():
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=theirs.fileno(),  # both directions
                    stdout=asyncio.subprocess.DEVNULL,
                    start_new_session=True,  # the signals of a terminal are for us
                )
        except BaseException:  # also Ctrl-C: no socket may stay
            ours.close()
            raise
        child = cls(process, *await asyncio.open_unix_connection(sock=ours), other)
        child.send(request)
        return child

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.returncode is not None

    def send(self, message: object) -> None:
        """Send a message; to a child that has ended, nothing is sent."""
        self._writer.write(framed(message))

    def hang_up(self) -> None:
        """Close the connection: the child ends without another answer."""
        self._writer.close()

    async def frames(self) -> AsyncIterator[tuple[Any, bytes]]:
        """Messages and bytes, until it ends; then `error` is known."""
        try:
            while True:
                message_bytes, data_bytes = sizes(await self._exactly(HEAD.size), MAX_DATA_BYTES)
                message = message_of(await self._exactly(message_bytes))
                data = await self._exactly(data_bytes)
                if isinstance(message, dict) and "failed" in message:
                    result_of(message["failed"], self._other)
                yield message, data
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await self._process.wait()
            how = f"ended with status {code}" if code >= 0 else f"was killed (signal {-code})"
            self.error = ChannelError(f"{self._other} {how}.")
        except ChannelError as error:  # what it sends is not to be trusted any more
            self.error = error
            self.kill()
        except (EbpfprofError, OSError, RuntimeError) as error:
            self.error = error

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._process.wait()

    def kill(self) -> None:
        """Kill it, unless it has ended; its helper detaches the probes."""
        if not self.has_ended:
            with suppress(ProcessLookupError):  # it ended since
                self._process.kill()

    async def close(self) -> None:
        """Kill it, unless it has ended, and wait for its end."""
        self.hang_up()
        self.kill()
        await self.wait()
        with suppress(OSError):  # it was killed with a message unread
            await self._writer.wait_closed()

    async def _exactly(self, size: int) -> bytes:
        return await self._reader.readexactly(size)
