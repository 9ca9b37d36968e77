"""Facts that Python shares with the C files in bpf/, read from there: each stands once, in the C.

It understands the plain C that those files have: `#define NAME number`, enums that count from 0,
and structs of numbers, structs and arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.kernel.sources import bpf_folder, program_text

if TYPE_CHECKING:  # it takes long to import
    import numpy as np

_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_DEFINE: Final = re.compile(r"^#define (\w+) (0x[0-9a-fA-F]+|\d+)U?L{0,2} *$", re.MULTILINE)
_ENUM: Final = re.compile(r"^enum (\w+) \{\s*(\w+(?:,\s*\w+)*),?\s*\};", re.MULTILINE)
_STRUCT: Final = re.compile(r"^struct (\w+) \{([^{}]*)\};", re.MULTILINE)
_MEMBERS: Final = re.compile(r"(?P<kind>struct \w+|unsigned long|[us]\d+) (?P<names>[^;]+);")
_DECLARATOR: Final = re.compile(r"(\w+)(?:\[(\w+(?: / \d+)?)\])?")
_NUMPY: Final = {
    "u8": "u1",
    "u16": "<u2",
    "u32": "<u4",
    "s32": "<i4",
    "u64": "<u8",
    "s64": "<i8",
    "unsigned long": "<u8",
}


def number(path: str, name: str) -> int:
    """The number that the file `path` in bpf/ defines as `name`, or that an enum there gives it.

    Raises KeyError.
    """
    found = _numbers(path).get(name)
    if found is None:
        raise KeyError(f"bpf/{path} has no number {name}")
    return found


def enum(path: str, name: str) -> dict[str, int]:
    """The members of an enum of the file `path` in bpf/, in its order. Raises KeyError."""
    return _enums(_text(path))[name]


def struct(path: str, name: str, macros: Mapping[str, int] | None = None) -> np.dtype[Any]:
    """A struct of the file `path` in bpf/, or of a file that it includes, laid out as in C.

    `macros` are numbers that Python defines when it compiles the program. Raises KeyError, or
    ValueError for a struct that has anything but plain members.
    """
    text = _COMMENT.sub(" ", program_text(path))
    return _struct(name, dict(_STRUCT.findall(text)), {**_defines(text), **(macros or {})})


def _struct(name: str, structs: Mapping[str, str], numbers: Mapping[str, int]) -> np.dtype[Any]:
    import numpy as np

    fields: list[tuple[str, Any, int]] = []
    for kind, member, length in _members(name, structs[name]):
        inner = kind.removeprefix("struct ")
        dtype = _NUMPY.get(kind) or _struct(inner, structs, numbers)
        fields.append((member, dtype, _size(length, numbers)))
    # Of size 1, numpy would make an array of it, too.
    plain = [field if field[2] > 1 else field[:2] for field in fields]
    return np.dtype(plain, align=True)


def _size(length: str, numbers: Mapping[str, int]) -> int:
    """Of an array: a number, a name, or either divided by a number."""
    whole, _, divisor = length.partition(" / ")
    return (int(whole) if whole.isdigit() else numbers[whole]) // int(divisor or 1)


def _members(name: str, body: str) -> Iterator[tuple[str, str, str]]:
    """The members of a struct: type, name, and how many; "1" for what is no array."""
    rest = _MEMBERS.sub("", body).strip()
    if rest:
        raise ValueError(f"struct {name} has more than plain members: {rest}")
    for match in _MEMBERS.finditer(body):
        for declarator in match["names"].split(","):
            plain = _DECLARATOR.fullmatch(declarator.strip())
            if not plain:
                raise ValueError(f"struct {name} has more than plain members: {declarator}")
            yield match["kind"], plain[1], plain[2] or "1"


@cache
def _text(path: str) -> str:
    """A file without its comments."""
    return _COMMENT.sub(" ", (bpf_folder() / path).read_text())


@cache
def _numbers(path: str) -> dict[str, int]:
    text = _text(path)
    found = _defines(text)
    for members in _enums(text).values():
        found |= members
    return found


def _defines(text: str) -> dict[str, int]:
    return {name: int(digits, 0) for name, digits in _DEFINE.findall(text)}


def _enums(text: str) -> dict[str, dict[str, int]]:
    return {
        name: {member.strip(): value for value, member in enumerate(members.split(","))}
        for name, members in _ENUM.findall(text)
    }
