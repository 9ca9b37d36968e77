"""What is wrong with a process that is served, observed on request: /debug/explain."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ebpfprof.console.text import in_one_line, printable
from ebpfprof.errors import (
    EbpfprofError,
    ExitCode,
    FaultFound,
    NoSuchProcess,
    TargetGone,
    UnsupportedTarget,
)
from ebpfprof.export.tables import explanation as table
from ebpfprof.server.go_forms import parse_int
from ebpfprof.server.pprof_answers import NOSNIFF, BadParameterError, error, parameter, process_of

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.goruntime.open_processes import OpenProcesses

_SECONDS: Final = 10
_MOST_SECONDS: Final = 300
_AT_ONCE: Final = 2
"""Observations at a time: each takes a few hundredths of a processor, here and of memory."""


class Explanations:
    """Observes the processes of a manager on request. Belongs to its event loop.

    Requests for a process that is being observed share that observation.
    """

    def __init__(self, manager: Manager, processes: OpenProcesses) -> None:
        """`processes` opens them."""
        self._manager, self._processes = manager, processes
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._running: dict[tuple[RecordedProcess, int], asyncio.Future[dict[str, Any]]] = {}

    async def __call__(self, request: Request) -> Response:
        """What `ebpfprof explain --json` would print; ?seconds=N is how long it observes."""
        try:
            process = process_of(self._manager, request.path_params.get("pid"))
            explained = await self.explain(process, asked_seconds(request))
        except BadParameterError as refusal:
            return error(request, 400, str(refusal))
        except (TargetGone, NoSuchProcess, UnsupportedTarget) as refusal:
            return error(request, 404, printable(in_one_line(str(refusal))))
        except EbpfprofError as refusal:
            return error(request, 500, printable(in_one_line(str(refusal))))
        code = FaultFound.exit_code if explained["findings"] else ExitCode.OK
        headers = {**NOSNIFF, "Cache-Control": "no-store"}
        return Response(f"{table.document(code, [explained])}\n", 200, headers, "application/json")

    async def explain(self, process: RecordedProcess, seconds: int) -> dict[str, Any]:
        """Observe a process from now on, and return what is wrong as explanation.as_json().

        At the end of the service it is what was seen until then. Raises any of ebpfprof.errors.
        """
        if process.ending is not None:
            raise TargetGone(f"{process.ending[:1].upper()}{process.ending[1:]}.")
        key = process, seconds
        if key not in self._running:
            self._running[key] = asyncio.ensure_future(self._observed(process, seconds))
            self._running[key].add_done_callback(lambda _: self._running.pop(key, None))
        return await asyncio.shield(self._running[key])

    async def _observed(self, process: RecordedProcess, seconds: int) -> dict[str, Any]:
        async with self._turn:
            return await asyncio.to_thread(self._observe, process.pid, seconds)

    def _observe(self, pid: int, seconds: int) -> dict[str, Any]:
        from ebpfprof.findings.rules import explained
        from ebpfprof.goruntime.open_processes import OpenOptions
        from ebpfprof.observing.observer import (
            Observer,
            observation_options,
            open_session,
            without_cpu,
        )

        options = observation_options(OpenOptions())
        stopping = self._manager.stopping
        live, refusal = open_session(options, 1, self._processes)
        with live, Observer(live, [pid], float(seconds)) as observer:
            (evidence,) = observer.observe(lambda _: stopping.is_set())
            if isinstance(evidence, EbpfprofError):
                raise evidence
            evidence = without_cpu(evidence, refusal)
            return table.as_json(evidence, explained(evidence))


def asked_seconds(request: Request) -> int:
    """The parameter `seconds`. Raises BadParameterError."""
    text = parameter(request, "seconds")
    if not text:
        return _SECONDS
    seconds, is_number = parse_int(text)
    if not is_number or not 0 < seconds <= _MOST_SECONDS:
        raise BadParameterError(f"seconds must be a number from 1 to {_MOST_SECONDS}.")
    return seconds
