"""A profile for `go build -pgo` that makes the compiler inline the runtime's blocking functions.

A CPU profile of a program that does little but block makes Go inline `chanrecv` into
`chanrecv1`, `casgstatus` into its callers and so on, yet what is hot differs from run to run.
Here the hot calls are a list; the line of each call, which is how the compiler finds it, is
looked up in the toolchain's own sources. The builds are the same every time.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.toolchains import Toolchain, ToolchainError, cache_dir

# (file under GOROOT/src/runtime, caller, callee). Calls that a version has not are left out.
HOT_CALLS: Final = (
    ("chan.go", "chanrecv1", "chanrecv"),
    ("chan.go", "chanrecv2", "chanrecv"),
    ("chan.go", "chanrecv", "recv"),
    ("chan.go", "chansend1", "chansend"),
    ("chan.go", "chansend", "send"),
    ("chan.go", "send", "goready"),
    ("chan.go", "recv", "goready"),
    ("proc.go", "park_m", "casgstatus"),
    ("proc.go", "park_m", "schedule"),
    ("proc.go", "ready", "casgstatus"),
    ("proc.go", "ready", "runqput"),
    ("proc.go", "execute", "casgstatus"),
    ("proc.go", "schedule", "execute"),
    ("proc.go", "newproc", "runqput"),
    ("sema.go", "readyWithTime", "goready"),
)
# Of what the list must have done in every version, proven by the tests: A is inlined into B.
WEIGHT: Final = 1_000_000


@dataclass(frozen=True)
class Call:
    """One hot call: names as the linker has them, lines of the caller's `func` and the call."""

    caller: str
    callee: str
    file: str
    start_line: int
    call_line: int
    callee_start_line: int


def scheduler_profile(toolchain: Toolchain) -> Path:
    """The profile for one toolchain, written to the cache."""
    path = cache_dir() / "pgo" / f"{toolchain.version}.pprof"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = gzip.compress(encode(hot_calls(toolchain.goroot)), mtime=0)
    if not path.exists() or path.read_bytes() != content:
        fresh = path.with_suffix(".new")
        fresh.write_bytes(content)
        fresh.rename(path)
    return path


def hot_calls(goroot: Path) -> list[Call]:
    """The calls of HOT_CALLS that the runtime of this toolchain has, with their lines.

    Raises ToolchainError if it has fewer than half: the sources are not what was expected.
    """
    starts: dict[str, int] = {}
    bodies: dict[tuple[str, str], list[str]] = {}
    for file in sorted({file for file, _, _ in HOT_CALLS}):
        lines = (goroot / "src" / "runtime" / file).read_text().splitlines()
        for number, line in enumerate(lines, 1):
            if opening := re.match(r"func (\w+)\(", line):
                end = next((i for i in range(number, len(lines)) if lines[i] == "}"), number)
                starts[opening[1]] = number
                bodies[file, opening[1]] = lines[number - 1 : end]
    calls = []
    for file, caller, callee in HOT_CALLS:
        body = bodies.get((file, caller), [])
        for offset, line in enumerate(body):
            code = line.split("//")[0]
            if offset and re.search(rf"(?<![\w.]){callee}\(", code) and callee in starts:
                calls.append(
                    Call(
                        f"runtime.{caller}",
                        f"runtime.{callee}",
                        f"runtime/{file}",
                        starts[caller],
                        starts[caller] + offset,
                        starts[callee],
                    )
                )
    if len(calls) < len(HOT_CALLS) // 2:
        raise ToolchainError(f"Few of the runtime's hot calls were found under {goroot}.")
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
        stack = _fields((1, leaf), (1, root), (2, WEIGHT), (2, WEIGHT))
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
