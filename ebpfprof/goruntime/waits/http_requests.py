"""Which request a goroutine of net/http's server handles, read from memory without a probe.

net/http.(*conn).serve has its connection in the slot of its first argument, where the compiler's
own table says so (FUNCDATA_ArgLiveInfo: that is what tracebacks rely on). The connection has the
response in progress, that has the request (net/http/server.go: conn.curReq, response.req; Go 1.20
to 1.27, HTTP/1). Where the fields lie, the descriptors of the types tell, which stripped programs
have, too.

What is read is believed if the frame's return address is where it must be, if the response points
back at the connection, and if the goroutine was in the same wait before and afterwards: a goroutine
that waits does not change its request. Of those that run or are in a system call nothing is read.
For HTTP/2 see http2_requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.waits.http2_requests import Http2RequestReader
from ebpfprof.goruntime.waits.request_memory import (
    CONN,
    REQUEST,
    URL,
    RequestMemory,
    RequestTypes,
    offsets_of,
)
from ebpfprof.process.memory import UnreadableMemory
from symbolizer.errors import GoTableError
from symbolizer.go.arguments import Argument

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine, GoroutineScanner
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.goroutines import HttpRequest

    Words = npt.NDArray[np.uint64]

_SERVE: Final = "net/http.(*conn).serve"
_RESPONSE: Final = "net/http.response"
_POINTER: Final = "sync/atomic.Pointer"
_MOST_GOROUTINES: Final = 1 << 10
_MOST_FRAMES: Final = 1 << 10
_FRAME: Final = np.dtype([("bp", "<u8"), ("return_pc", "<u8")])
_WORD_BYTES: Final = 8
_ARGUMENTS: Final = 16
"""How far a function's arguments are from its frame's address: behind the return address."""


class RequestFields(NamedTuple):
    """Where the fields lie: offsets in bytes. `pattern` is None before Go 1.23."""

    current: int
    conn: int
    request: int
    method: int
    url: int
    path: int
    pattern: int | None


FieldFinder = Callable[[RequestTypes], RequestFields | None]


class _Serving(NamedTuple):
    """A goroutine, the depth of serve on its stack, and the connection's offset in arguments."""

    goroutine: Goroutine
    depth: int
    offset: int


class RequestReader:
    """Reads the requests of the goroutines of one target, any number of times."""

    def __init__(
        self, go: GoTarget, scanner: GoroutineScanner, find_fields: FieldFinder | None = None
    ) -> None:
        """Find the fields with `find_fields` once they are needed, by default request_fields."""
        self._find_fields = find_fields or request_fields
        self._binary, self._bias = go.binary, go.load_bias
        self._scanner, self._memory = scanner, scanner.memory
        self._texts = RequestMemory(scanner.memory)
        self._types = RequestTypes(go.binary, go.load_bias, scanner.memory)
        self._http2 = Http2RequestReader(go.binary, go.load_bias, scanner.memory, self._types)
        self._fields: RequestFields | None = None
        self._are_known = False
        self._offsets: dict[int, int | None] = {}

    def read(self, goroutines: Sequence[Goroutine]) -> dict[int, HttpRequest]:
        """The requests that goroutines of a scan handle, by their ids; of waiting ones only.

        Of the first 1,024 that serve a connection of HTTP/1, and as many of HTTP/2. Raises
        TargetGone.
        """
        requests = self._http2.read(goroutines)
        serving = self._serving(goroutines)
        fields = self._known_fields() if serving else None
        if fields is not None:
            first = self._responses(serving, fields)
            requests |= {
                one.goroutine.goid: (one.goroutine.wait, request)
                for one, response in zip(serving, first, strict=True)
                if response and (request := self._request(response, fields))
            }
        if not requests:
            return {}
        heads = self._scanner.read_table()
        waits = frozenset(heads.waits[heads.is_there].tolist())
        return {goid: request for goid, (wait, request) in requests.items() if wait in waits}

    def prepare(self) -> None:
        """Find the fields now: see RequestTypes. Raises TargetGone."""
        self._known_fields()

    def _serving(self, goroutines: Iterable[Goroutine]) -> list[_Serving]:
        serving: list[_Serving] = []
        for goroutine in goroutines:
            if not goroutine.is_parked or len(serving) >= _MOST_GOROUTINES:
                continue
            for depth, pc in enumerate(goroutine.pcs[1:_MOST_FRAMES], 1):
                offset = self._offset(pc)
                if offset is not None:
                    serving.append(_Serving(goroutine, depth, offset))
                    break
        return serving

    def _offset(self, return_pc: int) -> int | None:
        """Where serve has its connection at a call; None for other functions, or if it is gone."""
        if return_pc not in self._offsets:
            self._offsets[return_pc] = self._find_offset(return_pc - self._bias - 1)
        return self._offsets[return_pc]

    def _find_offset(self, pc: int) -> int | None:
        try:
            function = self._binary.function_at(pc)
            if function is None or function.name != _SERVE:
                return None
            arguments = (a for a in self._binary.arguments(pc) if isinstance(a, Argument))
            first = next(arguments, None)
        except GoTableError:
            return None
        is_there = first is not None and first.is_live and first.size == _WORD_BYTES
        return first.offset if first and is_there else None

    def _responses(self, serving: list[_Serving], fields: RequestFields) -> list[int]:
        """The address of the response in progress of each; 0 if there is none that is right."""
        frames = np.array([one.goroutine.words.bp for one in serving], np.uint64)
        depths = np.array([one.depth for one in serving])
        callers = np.zeros(len(serving), np.uint64)
        for step in range(1, int(depths.max()) + 1):
            rows = np.flatnonzero(depths >= step)
            read = self._memory.read_records(frames[rows], _FRAME)
            frames[rows], callers[rows] = read["bp"], read["return_pc"]
        pcs = [one.goroutine.pcs[one.depth] for one in serving]
        offsets = np.array([one.offset + _ARGUMENTS for one in serving], np.uint64)
        conns = self._texts.words(frames + offsets)
        conns[(callers != np.array(pcs, np.uint64)) | (frames == 0)] = 0
        responses = self._texts.words_at(conns, fields.current)
        is_right = (conns != 0) & (self._texts.words_at(responses, fields.conn) == conns)
        addresses: list[int] = np.where(is_right, responses, np.uint64(0)).tolist()
        return addresses

    def _request(self, response: int, fields: RequestFields) -> HttpRequest | None:
        try:
            address = self._texts.word(response + fields.request)
            return self._texts.request(address, fields, fields.path)
        except UnreadableMemory:
            return None

    def _known_fields(self) -> RequestFields | None:
        if not self._are_known:
            self._are_known = True
            self._fields = self._find_fields(self._types)
        return self._fields


def request_fields(known: RequestTypes) -> RequestFields | None:
    """The fields of a program; None if it has not these types, or not as we know them.

    Raises TargetGone.
    """
    if not known.current_kind.startswith(_POINTER):
        return None  # up to Go 1.19 it is an atomic.Value
    try:
        structs = {name: known.structs[name] for name in (CONN, _RESPONSE, REQUEST, URL)}
        offsets = {name: offsets_of(struct) for name, struct in structs.items()}
        return RequestFields(
            current=offsets[CONN]["curReq"],
            conn=offsets[_RESPONSE]["conn"],
            request=offsets[_RESPONSE]["req"],
            method=offsets[REQUEST]["Method"],
            url=offsets[REQUEST]["URL"],
            path=offsets[URL]["Path"],
            pattern=offsets[REQUEST].get("Pattern"),
        )
    except KeyError:
        return None
