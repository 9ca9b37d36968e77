"""What keeps the objects of a process alive, read on request: /debug/references, and the page.

It takes 0.7 CPU seconds for each 100 MiB of pointers, and 100 MB or more, so another ebpfprof does
it, one process at a time. Types, names and sizes are sent, never what objects contain.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ebpfprof.console.text import in_one_line, printable
from ebpfprof.errors import EbpfprofError, NoSuchProcess, TargetGone, UnsupportedTarget
from ebpfprof.goruntime.open_processes import OpenOptions
from ebpfprof.server.pprof_answers import NOSNIFF, error, process_of
from ebpfprof.server.served_child import ServedChild, command_of
from ebpfprof.system.channel import ChannelError, result_of

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess

_OTHER: Final = "The ebpfprof that read the heap"
_MOST_S: Final = 180.0
_USUAL: Final = OpenOptions()
HEADERS: Final = {**NOSNIFF, "Cache-Control": "no-store"}


class ServedReferences:
    """Reads the processes of a manager. Belongs to its event loop.

    Requests for what is being read share that reading.
    """

    def __init__(self, manager: Manager, opening: OpenOptions = _USUAL) -> None:
        """`opening` says how processes are read."""
        self._manager, self._opening = manager, opening
        self._turn = asyncio.Lock()
        self._running: dict[tuple[RecordedProcess, bool], asyncio.Task[bytes]] = {}

    async def __call__(self, request: Request) -> Response:
        """What `ebpfprof memory --references --json` would print."""
        try:
            process = process_of(self._manager, request.path_params.get("pid"))
            found = await self.read(process, is_page=False)
        except (TargetGone, NoSuchProcess, UnsupportedTarget) as refusal:
            return error(request, 404, printable(in_one_line(str(refusal))))
        except EbpfprofError as refusal:
            return error(request, 500, printable(in_one_line(str(refusal))))
        return Response(found, 200, HEADERS, "application/json")

    async def read(self, process: RecordedProcess, *, is_page: bool) -> bytes:
        """JSON, for the page or as docs/references.schema.json. Raises any of ebpfprof.errors."""
        if process.ending is not None:
            raise TargetGone(f"{process.ending[:1].upper()}{process.ending[1:]}.")
        key = process, is_page
        if key not in self._running:
            task = self._running[key] = asyncio.ensure_future(self._read(process.pid, is_page))
            task.add_done_callback(lambda _: self._running.pop(key, None))
        return await asyncio.shield(self._running[key])

    async def _read(self, pid: int, is_page: bool) -> bytes:
        request = {"pid": pid, "opening": asdict(self._opening), "is_page": is_page}
        async with self._turn:
            answer = asyncio.ensure_future(self._answer(request))
            stopping = asyncio.ensure_future(self._manager.stopping.wait())
            try:
                await asyncio.wait(
                    [answer, stopping], timeout=_MOST_S, return_when=asyncio.FIRST_COMPLETED
                )
                if answer.done():
                    return answer.result()
                if stopping.done():
                    raise EbpfprofError("This server is shutting down.")
                raise EbpfprofError(
                    f"Reading the heap of process {pid} takes longer than {_MOST_S:.0f} s: "
                    "ebpfprof memory --references has no such limit."
                )
            finally:
                stopping.cancel()
                answer.cancel()
                await asyncio.gather(answer, stopping, return_exceptions=True)

    async def _answer(self, request: dict[str, Any]) -> bytes:
        child = await ServedChild.start(command_of("served-references"), request, _OTHER)
        try:
            async for message, data in child.frames():
                match message:
                    case {"answer": answer}:
                        result_of(answer, _OTHER)
                        return data
            raise child.error or ChannelError(f"{_OTHER} ended too early.")
        except (ChannelError, OSError, RuntimeError) as failed:
            raise EbpfprofError(f"The heap was not read. {failed}") from failed
        finally:
            await child.close()
