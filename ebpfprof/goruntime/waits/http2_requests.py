"""Which request of HTTP/2 a goroutine handles: method, path, and the pattern that routed it.

Each request has a goroutine that begins with serverConn.runHandler. Its frame has the response
writer, which a deferred function needs. No table says where, so each word of the frame is tried,
and those are kept that are right in each goroutine. One is right if it leads to a state of a
response whose stream and connection belong together. The state has the request (net/http,
h2_bundle.go, responseWriterState.req, Go 1.20 to 1.26, and golang.org/x/net/http2). From Go 1.27 on
it is one of the package's own (net/http/internal/http2/api.go, ServerRequest), of which the server
makes a net/http.Request with the same context and URL: that has the pattern, and is looked for in
the frames of the handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.waits.request_memory import REQUEST, URL, RequestMemory, offsets_of
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.goroutines import HttpRequest
from symbolizer.errors import GoTableError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.waits.request_memory import RequestTypes
    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary

    Words = npt.NDArray[np.uint64]

# The functions in which handlers run, and what the names of types in their packages begin with.
_HANDLERS: Final = {
    "net/http.(*http2serverConn).runHandler": "net/http.http2",
    "net/http/internal/http2.(*serverConn).runHandler": "net/http/internal/http2.",
    "golang.org/x/net/http2.(*serverConn).runHandler": "golang.org/x/net/http2.",
}
_OUTERMOST: Final = 3
"""How many of the outermost functions may be runHandler: a wrapper is around it, and goexit."""
_MOST_GOROUTINES: Final = 1 << 10
_MOST_STACK_BYTES: Final = 1 << 16
_MOST_HEAP: Final = 1 << 36
_INTERFACE_DATA: Final = 8  # behind the type
_WORD: Final = 8


class Http2Fields(NamedTuple):
    """Where the fields lie: offsets in bytes.

    `stream`, `conn` and `request` are of a responseWriterState, `owner` is the connection of a
    stream. `own` are those of the package's own request, which is in the state itself; None where
    the state has the address of a net/http.Request.
    """

    stream: int
    conn: int
    request: int
    owner: int
    of_request: RequestOffsets
    own: RequestOffsets | None
    path: int


class RequestOffsets(NamedTuple):
    """Of a request; `pattern` is None before Go 1.23, and for the package's own."""

    method: int
    url: int
    context: int
    pattern: int | None


FieldFinder = Callable[["RequestTypes", str], Http2Fields | None]


class Http2RequestReader:
    """Reads the requests of HTTP/2 of the goroutines of one target, any number of times."""

    def __init__(
        self,
        binary: GoBinary,
        bias: int,
        memory: Memory,
        types: RequestTypes,
        find: FieldFinder | None = None,
    ) -> None:
        """Find the fields with `find` once they are needed, by default http2_fields."""
        self._binary, self._bias, self._memory, self._types = binary, bias, memory, types
        self._texts = RequestMemory(memory)
        self._find = find or http2_fields
        self._fields: dict[str, Http2Fields | None] = {}
        self._packages: dict[int, str] = {}
        self._slots: dict[int, frozenset[int]] = {}
        """Which words of the frame were right each time, by return address."""

    def read(self, goroutines: Iterable[Goroutine]) -> dict[int, tuple[int, HttpRequest]]:
        """The number of the wait, and the request, of goroutines that wait in a handler; by id.

        Of the first 1,024. Raises TargetGone.
        """
        requests: dict[int, tuple[int, HttpRequest]] = {}
        tried = 0
        for goroutine in goroutines:
            if not goroutine.is_parked or tried >= _MOST_GOROUTINES:
                continue
            depth, fields = self._handling(goroutine)
            if fields is None:
                continue
            tried += 1
            try:
                request = self._request(goroutine, depth, fields)
            except UnreadableMemory:
                continue
            if request:
                requests[goroutine.goid] = goroutine.wait, request
        return requests

    def _handling(self, goroutine: Goroutine) -> tuple[int, Http2Fields | None]:
        """At which depth a goroutine runs runHandler, and the fields of its package."""
        pcs = goroutine.pcs
        for depth in range(max(1, len(pcs) - _OUTERMOST), len(pcs)):
            package = self._package(pcs[depth])
            if package:
                if package not in self._fields:
                    self._fields[package] = self._find(self._types, package)
                return depth, self._fields[package]
        return 0, None

    def _package(self, return_pc: int) -> str:
        """How types of its package begin, if an address is in runHandler; else ""."""
        if return_pc not in self._packages:
            try:
                function = self._binary.function_at(return_pc - self._bias - 1)
            except GoTableError:
                function = None
            self._packages[return_pc] = _HANDLERS.get(function.name, "") if function else ""
        return self._packages[return_pc]

    def _request(self, goroutine: Goroutine, depth: int, fields: Http2Fields) -> HttpRequest | None:
        stack = _Stack.read(self._memory, goroutine)
        begin, end = stack.frame(goroutine.words.bp, goroutine.pcs, depth)
        sp = goroutine.words.sp
        state = self._state(goroutine.pcs[depth], stack.words(begin, end)[::-1], sp, fields)
        if not state:
            return None
        texts = self._texts
        if fields.own is None:
            address = texts.word(state + fields.request)
            return texts.request(address, fields.of_request, fields.path)
        own = state + fields.request
        request = texts.request(own, fields.own, fields.path)
        pattern_at = fields.of_request.pattern
        if request is None or pattern_at is None:
            return request
        inner = stack.words(sp, begin)
        address = self._made_of(own, inner[_near(inner, sp)], fields)
        if not address:
            return request
        return replace(request, pattern=texts.decoded(address + pattern_at))

    def _state(self, return_pc: int, words: Words, sp: int, fields: Http2Fields) -> int:
        """The state of the response to which a word of the frame leads; 0 unless it is one.

        `words` are those of the frame, the outermost first. Some may be left over from another
        goroutine that had the same memory: the right ones are right in each goroutine.
        """
        texts = self._texts
        known = self._slots.get(return_pc)
        slots = np.flatnonzero(_near(words, sp)) if known is None else np.array(sorted(known), int)
        slots = slots[slots < len(words)]
        states = texts.words(words[slots])
        conns = texts.words_at(states, fields.conn)
        owners = texts.words_at(texts.words_at(states, fields.stream), fields.owner)
        is_right = (conns != 0) & (owners == conns)
        if is_right.any():
            self._slots[return_pc] = frozenset(slots[is_right].tolist())
        found: set[int] = set(states[is_right].tolist())
        return found.pop() if len(found) == 1 else 0

    def _made_of(self, own: int, words: Words, fields: Http2Fields) -> int:
        """The address of the net/http.Request that was made of a request; 0 if none is seen."""
        texts, of_request = self._texts, fields.of_request
        assert fields.own is not None
        url = texts.word(own + fields.own.url)
        context = texts.word(own + fields.own.context + _INTERFACE_DATA)
        candidates = np.unique(words)
        has_url = texts.words_at(candidates, of_request.url) == url
        contexts = texts.words_at(candidates, of_request.context + _INTERFACE_DATA)
        found: list[int] = candidates[has_url & (contexts == context)].tolist()
        return found[0] if len(found) == 1 and url and context else 0


def _near(words: Words, stack: int) -> npt.NDArray[np.bool_]:
    """Which words may be addresses of the heap: stacks are on it, too."""
    base = max(stack - _MOST_HEAP, 1)
    is_aligned = words % _WORD == 0
    near: npt.NDArray[np.bool_] = is_aligned & (words >= base) & (words < stack + _MOST_HEAP)
    return near


class _Stack:
    """The used part of a goroutine's stack."""

    def __init__(self, start: int, data: bytes) -> None:
        self._start = start
        self._words: Words = np.frombuffer(data[: len(data) // _WORD * _WORD], np.uint64)

    @classmethod
    def read(cls, memory: Memory, goroutine: Goroutine) -> _Stack:
        """Raises UnreadableMemory, TargetGone."""
        sp, hi = goroutine.words.sp, goroutine.words.hi
        if not 0 < sp < hi <= sp + _MOST_STACK_BYTES or sp % _WORD:
            raise UnreadableMemory(f"{sp:#x} to {hi:#x} is no stack that is read.")
        return cls(sp, memory.read(sp, hi - sp))

    def frame(self, bp: int, pcs: tuple[int, ...], depth: int) -> tuple[int, int]:
        """Where the local variables of the function at a depth begin and end.

        Raises UnreadableMemory if the frames are not those of these return addresses.
        """
        inner = bp
        for caller in pcs[1 : depth + 1]:
            inner, bp = bp, self._word(bp)
            if self._word(inner + _WORD) != caller or bp <= inner:
                raise UnreadableMemory(f"{inner:#x} is no frame of a call from {caller:#x}.")
        return inner + 2 * _WORD, bp

    def words(self, begin: int, end: int) -> Words:
        """The words between two addresses, as far as they are on the stack."""
        first = max(0, (begin - self._start) // _WORD)
        return self._words[first : max(first, (end - self._start) // _WORD)]

    def _word(self, address: int) -> int:
        index, rest = divmod(address - self._start, _WORD)
        if rest or not 0 <= index < len(self._words):
            raise UnreadableMemory(f"{address:#x} is not on the stack.")
        return int(self._words[index])


def http2_fields(types: RequestTypes, package: str) -> Http2Fields | None:
    """The fields of a program whose types of HTTP/2 have names that begin with `package`.

    None if it has not these types, or not as we know them. Raises TargetGone.
    """
    found = types.structs
    state, stream, own = (
        f"{package}{n}" for n in ("responseWriterState", "stream", "ServerRequest")
    )
    try:
        of_state, of_request = offsets_of(found[state]), offsets_of(found[REQUEST])
        return Http2Fields(
            stream=of_state["stream"],
            conn=of_state["conn"],
            request=of_state["req"],
            owner=offsets_of(found[stream])["sc"],
            of_request=RequestOffsets(
                method=of_request["Method"],
                url=of_request["URL"],
                context=of_request["ctx"],
                pattern=of_request.get("Pattern"),
            ),
            own=_own(offsets_of(found[own])) if own in found else None,
            path=offsets_of(found[URL])["Path"],
        )
    except KeyError:
        return None


def _own(offsets: dict[str, int]) -> RequestOffsets:
    """Of a ServerRequest. May raise KeyError."""
    return RequestOffsets(offsets["Method"], offsets["URL"], offsets["Context"], None)
