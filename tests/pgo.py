"""Profiles for `go build -pgo` that make the compiler inline the runtime's blocking functions.

A CPU profile of a program that does little but block makes Go inline `chanrecv` into
`chanrecv1`, `gopark` into `chanrecv`, `casgstatus` into its callers and so on, yet what is hot
differs from run to run. Here the hot calls are a list; the line of each call, which is how the
compiler finds it, is looked up in the toolchain's own sources. The builds are the same every
time.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.toolchains import Toolchain, ToolchainError, cache_dir, locked

# By build mode: (file under GOROOT/src/runtime, caller, callee). What is hot together must stay
# under the compiler's size limit for inlining, hence two sets. Real profiles do both: that of
# eight goroutines playing ping-pong makes gopark part of chanrecv and chansend. (It stays out of
# semacquire1, which calls it by way of goparkunlock.)
HOT_CALLS: Final[dict[str, tuple[tuple[str, str, str], ...]]] = {
    "pgo": (
        ("chan.go", "chanrecv1", "chanrecv"),
        ("chan.go", "chanrecv2", "chanrecv"),
        ("chan.go", "chansend1", "chansend"),
        ("proc.go", "execute", "casgstatus"),
        ("proc.go", "newproc", "runqput"),
        ("proc.go", "park_m", "casgstatus"),
        ("proc.go", "ready", "casgstatus"),
        ("proc.go", "ready", "runqput"),
        ("proc.go", "schedule", "execute"),
        ("sema.go", "readyWithTime", "goready"),
    ),
    "pgopark": (
        ("chan.go", "chanrecv", "gopark"),
        ("chan.go", "chanrecv", "recv"),
        ("chan.go", "chansend", "gopark"),
        ("chan.go", "chansend", "send"),
        ("proc.go", "park_m", "schedule"),
        ("proc.go", "ready", "casgstatus"),
        ("select.go", "selectgo", "gopark"),
    ),
}
_WEIGHT: Final = 1_000_000


@dataclass(frozen=True)
class Call:
    """One hot call: names as the linker has them, lines of the caller's `func` and the call."""

    caller: str
    callee: str
    file: str
    start_line: int
    call_line: int
    callee_start_line: int


def scheduler_profile(toolchain: Toolchain, mode: str) -> Path:
    """The profile of one toolchain and mode, written to the cache. Raises ToolchainError."""
    path = cache_dir() / "pgo" / f"{toolchain.version}-{mode}.pprof"
    content = gzip.compress(encode(hot_calls(toolchain.goroot, HOT_CALLS[mode])), mtime=0)
    with locked(path.with_suffix(".lock")):
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
    return path


def hot_calls(goroot: Path, wanted: Iterable[tuple[str, str, str]]) -> list[Call]:
    """The wanted calls (file, caller, callee) with their lines in the sources of a toolchain.

    Raises ToolchainError if one is not there: the sources are not what was expected.
    """
    wanted = list(wanted)
    starts: dict[str, int] = {}
    bodies: dict[tuple[str, str], list[str]] = {}
    for file in sorted({file for file, _, _ in wanted}):
        lines = (goroot / "src" / "runtime" / file).read_text().splitlines()
        for number, line in enumerate(lines, 1):
            if opening := re.match(r"func (\w+)\(", line):
                end = next((i for i in range(number, len(lines)) if lines[i] == "}"), number)
                starts[opening[1]] = number
                bodies[file, opening[1]] = lines[number - 1 : end]
    calls = []
    for file, caller, callee in wanted:
        found = [
            Call(
                f"runtime.{caller}",
                f"runtime.{callee}",
                f"runtime/{file}",
                starts[caller],
                starts[caller] + offset,
                starts[callee],
            )
            for offset, line in enumerate(bodies.get((file, caller), []))
            if offset and re.search(rf"(?<![\w.]){callee}\(", line.split("//")[0])
        ]
        if not found:
            raise ToolchainError(f"{caller} does not call {callee} in {goroot}/src/runtime/{file}.")
        calls.extend(found)
    return calls


def encode(calls: Iterable[Call]) -> bytes:
    """The calls as a CPU profile in the format of pprof (profile.proto), not compressed."""
    strings = [""]

    def string(text: str) -> int:
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    functions: dict[str, int] = {}
    tables = bytearray()

    def function(name: str, file: str, start_line: int) -> int:
        if name not in functions:
            functions[name] = len(functions) + 1
            named = string(name)
            message = _fields((1, functions[name]), (2, named), (3, named), (4, string(file)))
            tables.extend(_message(5, message + _fields((5, start_line))))
        return functions[name]

    def location(number: int, function_id: int, line: int) -> int:
        placed = _message(4, _fields((1, function_id), (2, line)))
        tables.extend(_message(4, _fields((1, number), (3, 4096 + number)) + placed))
        return number

    samples = bytearray()
    count = 0
    for call in calls:
        callee = function(call.callee, call.file, call.callee_start_line)
        caller = function(call.caller, call.file, call.start_line)
        leaf = location(count + 1, callee, call.callee_start_line + 1)
        root = location(count + 2, caller, call.call_line)
        count += 2
        stack = _fields((1, leaf), (1, root), (2, _WEIGHT), (2, _WEIGHT))
        samples.extend(_message(2, stack))
    head = bytearray()
    for kind, unit in (("samples", "count"), ("cpu", "nanoseconds")):
        head.extend(_message(1, _fields((1, string(kind)), (2, string(unit)))))
    tail = _message(11, _fields((1, string("cpu")), (2, string("nanoseconds")))) + _fields((12, 1))
    texts = b"".join(_message(6, text.encode()) for text in strings)
    return bytes(head + samples + tables + texts + tail)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _fields(*fields: tuple[int, int]) -> bytes:
    return b"".join(_varint(number << 3) + _varint(value) for number, value in fields)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content
