"""What the endpoints of net/http/pprof have in common: parameters, headers and errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from ebpfprof.errors import NoSuchProcess
from ebpfprof.export import pprof
from ebpfprof.server.go_forms import form_value, parse_int
from ebpfprof.server.refusals import refused

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.profile.model import Profile

NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}
TEXT: Final = "text/plain; charset=utf-8"


class BadParameterError(Exception):
    """A parameter that Go refuses, with Go's sentence."""


def parameter(request: Request, key: str) -> str:
    """The first value of a parameter in the query, "" if there is none."""
    return form_value(query(request), key)


def query(request: Request) -> bytes:
    """The raw query."""
    query_string: bytes = request.scope["query_string"]
    return query_string


def debug_and_seconds(request: Request) -> tuple[int, int | None]:
    """The parameters debug, and seconds if it is given, as net/http/pprof reads them.

    Raises BadParameterError for seconds that are no positive number, or with debug.
    """
    debug, _ = parse_int(parameter(request, "debug"))
    text = parameter(request, "seconds")
    if not text:
        return debug, None
    seconds, is_number = parse_int(text)
    if seconds <= 0 or not is_number:
        raise BadParameterError('invalid value for "seconds" - must be a positive integer')
    if debug != 0:
        raise BadParameterError("seconds and debug params are incompatible")
    return debug, seconds


def attachment(name: str) -> dict[str, str]:
    """The headers of a file."""
    return {**NOSNIFF, "Content-Disposition": f'attachment; filename="{name}"'}


async def file(profile: Profile | None, headers: dict[str, str]) -> Response:
    """The profile as a file; the headers alone if there is none, since only they are wanted."""
    body = await asyncio.to_thread(pprof.encode, profile) if profile else None
    return Response(body, 200, headers, "application/octet-stream")


def error(request: Request, status: int, sentence: str) -> Response:
    """A refusal, in the form of Go's."""
    return refused(request.scope, status, sentence)


async def hang_up(request: Request) -> None:
    """Wait until the client has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def process_of(manager: Manager, pid: int | None) -> RecordedProcess:
    """The process of a request; without `pid`, the only one. Raises NoSuchProcess."""
    if pid is not None:
        process = manager.find(pid)
        if process is None:
            raise NoSuchProcess(f"Process {pid} is not served here: / shows those that are.")
        return process
    running = [process for process in manager.processes if process.ending is None]
    candidates = running or manager.processes
    if len(candidates) != 1:
        raise NoSuchProcess(
            f"{len(candidates)} processes are served here: say which one, with its number in the "
            "address, as in /proc/PID/debug/pprof/block. / shows them."
        )
    return candidates[0]
