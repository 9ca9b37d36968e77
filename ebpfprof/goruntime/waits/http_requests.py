"""Which request a goroutine of net/http's server handles, read from memory without a probe.

net/http.(*conn).serve has its connection in the slot of its first argument, where the compiler's
own table says so (FUNCDATA_ArgLiveInfo: that is what tracebacks rely on). The connection has the
response in progress, that has the request (net/http/server.go: conn.curReq, response.req; Go 1.20
to 1.27, HTTP/1). Where the fields lie, the descriptors of the types tell, which stripped programs
have, too.

What is read is believed if the frame's return address is where it must be, if the response points
back at the connection, and if the goroutine was in the same wait before and afterwards: a goroutine
that waits does not change its request. Of those that run or are in a system call nothing is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.goroutines import HttpRequest
from symbolizer.errors import GoTableError
from symbolizer.go.arguments import Argument
from symbolizer.go.type_descriptors import (
    MAX_BYTES,
    TypeDescriptor,
    TypeDescriptors,
    has_flags_in_offsets,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine, GoroutineScanner
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary

    Words = npt.NDArray[np.uint64]

_SERVE: Final = "net/http.(*conn).serve"
_CONN: Final = "net/http.conn"
_RESPONSE: Final = "net/http.response"
_REQUEST: Final = "net/http.Request"
_URL: Final = "net/url.URL"
_POINTER: Final = "sync/atomic.Pointer"
_MOST_GOROUTINES: Final = 1 << 10
_MOST_FRAMES: Final = 1 << 10
_MOST_STRUCTS: Final = 1 << 17
_MOST_TEXT: Final = 1 << 11
_WORD: Final = np.dtype([("word", "<u8")])
_FRAME: Final = np.dtype([("bp", "<u8"), ("return_pc", "<u8")])
_ARGUMENTS: Final = 16
"""How far a function's arguments are from its frame's address: behind the return address."""
_METHOD: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,32}")  # RFC 9110, token


class RequestFields(NamedTuple):
    """Where the fields lie: offsets in bytes. `pattern` is None before Go 1.23."""

    current: int
    conn: int
    request: int
    method: int
    url: int
    path: int
    pattern: int | None


FieldFinder = Callable[["GoBinary", int, "Memory"], RequestFields | None]


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
        self._fields: RequestFields | None = None
        self._are_known = False
        self._offsets: dict[int, int | None] = {}

    def read(self, goroutines: Iterable[Goroutine]) -> dict[int, HttpRequest]:
        """The requests that goroutines of a scan handle, by their ids; of waiting ones only.

        Of the first 1,024 that serve a connection. Raises TargetGone.
        """
        serving = self._serving(goroutines)
        fields = self._known_fields() if serving else None
        if fields is None:
            return {}
        first = self._responses(serving, fields)
        requests = {
            one.goroutine.goid: (one.goroutine.wait, request)
            for one, response in zip(serving, first, strict=True)
            if response and (request := self._request(response, fields))
        }
        if not requests:
            return {}
        heads = self._scanner.read_table()
        waits = frozenset(heads.waits[heads.is_there].tolist())
        return {goid: request for goid, (wait, request) in requests.items() if wait in waits}

    def prepare(self) -> bool:
        """Find the fields now: for a large program it takes some tenths of a second.

        False if the program has no server of net/http that we know. Raises TargetGone.
        """
        return self._known_fields() is not None

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
        is_there = first is not None and first.is_live and first.size == _WORD.itemsize
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
        conns = self._words(frames + offsets)
        conns[(callers != np.array(pcs, np.uint64)) | (frames == 0)] = 0
        responses = self._words_at(conns, fields.current)
        is_right = (conns != 0) & (self._words_at(responses, fields.conn) == conns)
        addresses: list[int] = np.where(is_right, responses, np.uint64(0)).tolist()
        return addresses

    def _request(self, response: int, fields: RequestFields) -> HttpRequest | None:
        try:
            request = self._word(response + fields.request)
            url = self._word(request + fields.url)
            method = self._text(request + fields.method)
            path = self._text(url + fields.path)
            pattern = b"" if fields.pattern is None else self._text(request + fields.pattern)
        except UnreadableMemory:
            return None
        if not _METHOD.fullmatch(method):
            return None
        return HttpRequest(method.decode(), _decoded(path), _decoded(pattern))

    def _words_at(self, addresses: Words, offset: int) -> Words:
        """The words at an offset from each address; 0 for those from 0."""
        words = self._words(addresses + np.uint64(offset))
        words[addresses == 0] = 0
        return words

    def _words(self, addresses: Words) -> Words:
        words: Words = self._memory.read_records(addresses, _WORD)["word"]
        return words

    def _word(self, address: int) -> int:
        return int.from_bytes(self._memory.read(_in_range(address), 8), "little")

    def _text(self, address: int) -> bytes:
        """The first bytes of the string at an address."""
        data, length = self._word(address), self._word(address + 8)
        return self._memory.read(_in_range(data), min(length, _MOST_TEXT)) if length else b""

    def _known_fields(self) -> RequestFields | None:
        if not self._are_known:
            self._are_known = True
            self._fields = self._find_fields(self._binary, self._bias, self._memory)
        return self._fields


def request_fields(binary: GoBinary, bias: int, memory: Memory) -> RequestFields | None:
    """The fields of a program; None if it has not these types, or not as we know them.

    `bias` is runtime address minus linked. Raises TargetGone.
    """
    start, end = binary.types
    if not 0 < end - start <= MAX_BYTES:
        return None
    try:
        data = memory.read(start + bias, end - start)
    except UnreadableMemory:
        return None
    old = has_flags_in_offsets(binary.layout)
    types = TypeDescriptors(data, start + bias, flags_in_offsets=old)
    wanted = {_CONN, _RESPONSE, _REQUEST, _URL}
    structs: dict[str, TypeDescriptor] = {}
    for address in types.structs()[0][:_MOST_STRUCTS].tolist():
        known = types.at(address)
        if known and known.name in wanted:
            structs[known.name] = known
    if structs.keys() != wanted:
        return None
    offsets = {name: _offsets(known) for name, known in structs.items()}
    current = next((one for one in structs[_CONN].fields if one.name == "curReq"), None)
    kind = types.at(current.type) if current else None
    if current is None or kind is None or not kind.name.startswith(_POINTER):
        return None  # up to Go 1.19 it is an atomic.Value
    try:
        return RequestFields(
            current=current.offset,
            conn=offsets[_RESPONSE]["conn"],
            request=offsets[_RESPONSE]["req"],
            method=offsets[_REQUEST]["Method"],
            url=offsets[_REQUEST]["URL"],
            path=offsets[_URL]["Path"],
            pattern=offsets[_REQUEST].get("Pattern"),
        )
    except KeyError:
        return None


def _offsets(struct: TypeDescriptor) -> Mapping[str, int]:
    return {field.name: field.offset for field in struct.fields}


def _in_range(address: int) -> int:
    """The address if the kernel can be asked for it. Raises UnreadableMemory."""
    if not 0 < address < 1 << 47:
        raise UnreadableMemory(f"{address:#x} is no address of a program.")
    return address


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")
