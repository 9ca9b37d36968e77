"""Lines of source files for the page: only of files that a recorded profile names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ebpfprof.console.text import in_one_line, printable
from ebpfprof.process.source_files import SourceError, SourceFiles, named_lines
from ebpfprof.server.refusals import refused

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.profile.model import Profile

_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class SourceApi:
    """The endpoint /api/targets/PID/source."""

    def __init__(self, manager: Manager, sources: SourceFiles | None) -> None:
        self._manager = manager
        self._sources = sources

    async def source(self, request: Request) -> Response:
        """Lines of the file ?file=PATH that profiles of the process name, and a few around them.

        Where there are none to show, the answer says why as "problem": that is no error.
        """
        pid, file = request.path_params["pid"], request.query_params.get("file", "")
        process = self._manager.find(pid)
        if process is None:
            return refused(request.scope, 404, f"Process {pid} is not served here.")
        windows = list(process.history.windows)
        profiles = [profile for window in windows for profile in window.profiles.values()]
        try:
            body = await asyncio.to_thread(self._read, file, profiles)
        except SourceError as error:
            body = {"problem": printable(in_one_line(str(error)))}
        return JSONResponse(body, headers=_HEADERS)

    def _read(self, file: str, profiles: Sequence[Profile]) -> dict[str, Any]:
        """Raises SourceError."""
        if self._sources is None:
            raise SourceError("No text of files is shown: start serve with --source DIR for that.")
        lines = named_lines(profiles).get(file)
        if not lines:
            raise SourceError("No profile of this process names such a file.")
        text = self._sources.read(file, lines)
        return text.as_json(min(profile.time_ns for profile in profiles))
