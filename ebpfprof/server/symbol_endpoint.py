"""The endpoint of names: which functions stand behind addresses, as net/http/pprof's Symbol."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ebpfprof.console.text import printable
from ebpfprof.server.go_forms import parse_address
from ebpfprof.server.pprof_answers import NOSNIFF, TEXT, error, query
from ebpfprof.server.symbols import symbols_of

if TYPE_CHECKING:
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.goruntime.open_processes import OpenProcesses

_MAX_BODY = 1 << 20
BODY_S = 30.0  # how long a client may take to send that
MAX_NAMES_BYTES = 1 << 26  # bytes; each address may come again and again, and its name may be long
_MAX_WORD = 4096  # bufio's buffer, in Go's Symbol


async def symbol(request: Request, process: RecordedProcess, processes: OpenProcesses) -> Response:
    """The functions behind the addresses in the query, or in the body of a POST."""
    words = query(request)
    if request.method == "POST":
        try:
            words = await asyncio.wait_for(_body(request), BODY_S)
        except TimeoutError:
            return error(request, 408, f"The addresses did not come within {BODY_S:g} s.")
        if len(words) > _MAX_BODY:
            return error(request, 413, f"More than {_MAX_BODY} bytes of addresses.")
    body = await asyncio.to_thread(_symbol_table, processes, process.pid, words)
    if len(body) > MAX_NAMES_BYTES:
        sentence = (
            f"The names of these addresses take more than {MAX_NAMES_BYTES} bytes: ask for fewer."
        )
        return error(request, 413, sentence)
    return Response(body, 200, NOSNIFF, TEXT)


async def _body(request: Request) -> bytes:
    """The body; of one larger than _MAX_BODY bytes only a beginning that is larger, too."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY:
            break
    return body


def _symbol_table(processes: OpenProcesses, pid: int, asked: bytes) -> bytes:
    """What Go's Symbol answers: a line for each address behind which there is a function.

    Of an answer longer than MAX_NAMES_BYTES bytes only the beginning, a little longer than that.
    """
    answered, size, end = [b"num_symbols: 1"], 0, b""  # clients only check whether it is 0
    words = asked.decode("latin-1").split("+")
    cut = next((index for index, word in enumerate(words) if len(word) >= _MAX_WORD), None)
    if cut is not None:
        words, end = words[: cut + 1], b"reading request: bufio: buffer full\n"
    pcs = [parse_address(word[:_MAX_WORD]) for word in words]
    with symbols_of(processes, pid) as symbols:
        names = symbols.names({pc for pc in pcs if pc})
    lines = {pc: f"{pc:#x} {printable(name)}".encode() for pc, name in names.items()}
    for pc in pcs:
        if pc in lines and size <= MAX_NAMES_BYTES:
            answered.append(lines[pc])
            size += len(lines[pc])
    return b"\n".join([*answered, end])
