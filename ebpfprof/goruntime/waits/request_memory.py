"""Reads what requests consist of: words and texts of a program's memory, offsets of its types."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from ebpfprof.goruntime.heap.program_types import program_types
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.goroutines import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from ebpfprof.process.memory import Memory
    from symbolizer import GoBinary
    from symbolizer.go.type_descriptors import TypeDescriptor

    Words = npt.NDArray[np.uint64]

CONN: Final = "net/http.conn"
REQUEST: Final = "net/http.Request"
URL: Final = "net/url.URL"
_PACKAGES: Final = ("net/http", "golang.org/x/net/http2.", URL)
_MOST_STRUCTS: Final = 1 << 17
_MOST_TEXT: Final = 1 << 11
_WORD: Final = np.dtype([("word", "<u8")])
_METHOD: Final = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,32}")  # RFC 9110, token


class Offsets(Protocol):
    """Where the fields of a request lie, in bytes; `pattern` is None where it has none."""

    @property
    def method(self) -> int:
        """Of the string with the method."""

    @property
    def url(self) -> int:
        """Of the pointer to the URL."""

    @property
    def pattern(self) -> int | None:
        """Of the string with the pattern of the mux, since Go 1.23."""


class RequestMemory:
    """The memory of a program. What makes no sense is 0, or UnreadableMemory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def request(self, address: int, offsets: Offsets, path: int) -> HttpRequest | None:
        """The request at an address, None if it is none; `path` is where a URL has its path.

        Raises UnreadableMemory, TargetGone.
        """
        url = self.word(address + offsets.url)
        method = self.text(address + offsets.method)
        if not _METHOD.fullmatch(method):
            return None
        pattern = "" if offsets.pattern is None else self.decoded(address + offsets.pattern)
        return HttpRequest(method.decode(), self.decoded(url + path), pattern)

    def words_at(self, addresses: Words, offset: int) -> Words:
        """The words at an offset from each address; 0 for those from 0, and unreadable ones."""
        words = self.words(addresses + np.uint64(offset))
        words[addresses == 0] = 0
        return words

    def words(self, addresses: Words) -> Words:
        """The words at these addresses; 0 for unreadable ones. Raises TargetGone."""
        words: Words = self._memory.read_records(addresses, _WORD)["word"]
        return words

    def word(self, address: int) -> int:
        """The word at an address. Raises UnreadableMemory, TargetGone."""
        return int.from_bytes(self._memory.read(_in_range(address), 8), "little")

    def text(self, address: int) -> bytes:
        """The first bytes of the string at an address. Raises UnreadableMemory, TargetGone."""
        data, length = self.word(address), self.word(address + 8)
        return self._memory.read(_in_range(data), min(length, _MOST_TEXT)) if length else b""

    def decoded(self, address: int) -> str:
        """The same as text. Raises UnreadableMemory, TargetGone."""
        return self.text(address).decode("utf-8", "replace")


class RequestTypes:
    """The structs of a program's servers, of which requests are a part.

    They are read once they are needed: for a large program that takes some tenths of a second.
    """

    def __init__(self, binary: GoBinary, bias: int, memory: Memory) -> None:
        """`bias` is runtime address minus linked."""
        self._binary, self._bias, self._memory = binary, bias, memory

    @property
    def structs(self) -> Mapping[str, TypeDescriptor]:
        """The structs of net/http, of HTTP/2, and url.URL, by name. Raises TargetGone."""
        return self._read[0]

    @property
    def current_kind(self) -> str:
        """The name of the type of net/http.conn's field curReq; "". Raises TargetGone."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[Mapping[str, TypeDescriptor], str]:
        try:
            types = program_types(self._memory, self._binary, self._bias)
        except UnreadableMemory:
            return {}, ""
        addresses: list[int] = types.structs()[0][:_MOST_STRUCTS].tolist()
        known = filter(None, map(types.at, addresses))
        structs = {one.name: one for one in known if one.name.startswith(_PACKAGES)}
        fields = structs[CONN].fields if CONN in structs else ()
        of_current = (types.at(field.type) for field in fields if field.name == "curReq")
        kind = next(of_current, None)
        return structs, kind.name if kind else ""


def offsets_of(struct: TypeDescriptor) -> dict[str, int]:
    """The offsets of its fields in bytes, by name."""
    return {field.name: field.offset for field in struct.fields}


def _in_range(address: int) -> int:
    """The address if the kernel can be asked for it. Raises UnreadableMemory."""
    if not 0 < address < 1 << 47:
        raise UnreadableMemory(f"{address:#x} is no address of a program.")
    return address
