"""Ways in through objects to which stacks point: channels, semaphores, requests; states of all."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final, cast
from unittest import mock

from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.goroutines.state_counts import StateCounter
from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.goruntime.waits.http2_requests import (
    Http2Fields,
    Http2RequestReader,
    RequestOffsets,
)
from ebpfprof.goruntime.waits.http_requests import RequestFields, RequestReader
from ebpfprof.goruntime.waits.object_fields import ObjectFields
from ebpfprof.goruntime.waits.semaphores import Semaphores
from ebpfprof.process.memory import UnreadableMemory
from symbolizer import Function, GoBinary, SymbolizerError
from symbolizer.go.arguments import Argument
from symbolizer.go.type_descriptors import StructField
from tests.fuzz.driver import Parser
from tests.fuzz.ways import memory
from tests.fuzz.ways.made_up import made_up_process

# As in the parser of goroutines, the input is their heads and their stacks. An object is behind
# the fields of the last goroutine: a semaphore, whose address the first one has on its stack.
_OBJECT: Final = memory._G + (memory._COUNT - 1) * memory._G_BYTES + 448
_FIELDS: Final = {
    name: StructField(name, 0, 8 * number, is_open=False)
    for number, name in enumerate(("size", "cur", "waiters"))
}


@cache
def object_seeds() -> Sequence[bytes]:
    (base, *_) = memory.goroutine_seeds()
    data = bytearray(base)
    each_bytes = memory._G_BYTES + memory._STACK_BYTES
    struct.pack_into("<Q", data, 88 + memory._G_BYTES + 80, _OBJECT)
    waiters = _OBJECT + 16
    at = 88 + (memory._COUNT - 1) * each_bytes + 448
    # Its list has one element, which is the root itself but for its address.
    struct.pack_into("<8Q", data, at, 4, 3, waiters + 8, waiters + 8, 0, waiters, 0, 1)
    return (bytes(data),)


@cache
def request_seeds() -> Sequence[bytes]:
    (base, *_) = memory.goroutine_seeds()
    data = bytearray(base)
    # The second frame has the connection; that has the response, which has the request.
    struct.pack_into("<Q", data, 88 + memory._G_BYTES + 64 + 16, _OBJECT)
    text = memory._STACK + (memory._COUNT - 1) * 4096 + 200
    each_bytes = memory._G_BYTES + memory._STACK_BYTES
    at = 88 + (memory._COUNT - 1) * each_bytes
    response, request, url = _OBJECT + 8, _OBJECT + 24, _OBJECT + 48
    struct.pack_into(
        *("<8Q", data, at + 448),
        *(response, _OBJECT, request, text, 3, url, text + 3, 9),
    )
    stack = at + memory._G_BYTES
    data[stack + 200 : stack + 212] = b"GET/cart?a=b"
    return (bytes(data),)


class Calls:
    """The tables of a program in which all code is of one function, with one argument."""

    def __init__(self, binary: GoBinary, function: str) -> None:
        self._binary, self._function = binary, function

    def __getattr__(self, name: str) -> object:
        return getattr(self._binary, name)

    def function_at(self, pc: int) -> Function:
        return Function(
            self._function, pc, pc + 1, start_line=0, func_id=0, flags=0, argument_bytes=8, index=0
        )

    def arguments(self, _: int) -> Sequence[Argument]:
        return (Argument(offset=0, size=8, is_live=True),)


def ask_requests(data: bytes) -> None:
    go = made_up_process(memory._go(), memory.parts_of(data))
    fields = RequestFields(current=0, conn=0, request=8, method=0, url=16, path=0, pattern=None)
    serving = cast("GoBinary", Calls(go.binary, "net/http.(*conn).serve"))
    with memory._without_pauses():
        scanner = GoroutineScanner(go)
        reader = RequestReader(replace(go, binary=serving), scanner, lambda *_: fields)
        found = reader.read(scanner.scan().goroutines)
    assert len(found) <= memory._COUNT
    assert all(request.method.isascii() for request in found.values())


def ask_http2_requests(data: bytes) -> None:
    """Where the state of a response has the address of its request, and where it has it inside."""
    go = made_up_process(memory._go(), memory.parts_of(data))
    offsets = RequestOffsets(method=0, url=16, context=0, pattern=0)
    outside = Http2Fields(
        stream=0, conn=0, request=8, owner=8, of_request=offsets, own=None, path=0
    )
    inside = outside._replace(request=16, own=offsets._replace(pattern=None))
    handling = cast("GoBinary", Calls(go.binary, "net/http.(*http2serverConn).runHandler"))
    with memory._without_pauses():
        scanner = GoroutineScanner(go)
        goroutines = scanner.scan().goroutines
        for fields in (outside, inside):
            find = mock.Mock(return_value=fields)
            reader = Http2RequestReader(handling, 0, scanner.memory, mock.Mock(), find)
            found = reader.read(goroutines)
            assert len(found) <= memory._COUNT
            assert all(one.method.isascii() for _, one in found.values())


def ask_objects(data: bytes) -> None:
    go = made_up_process(memory._go(), memory.parts_of(data))
    with memory._without_pauses(), mock.patch.object(ObjectFields, "of", return_value=_FIELDS):
        dumper = GoroutineDumper(go)
        goids = {goroutine.goid for goroutine in dumper.dump_once().goroutines}
        users = dumper.channel_users({_OBJECT})
        assert goids.issuperset(users.get(_OBJECT, ()))
        assert sum(StateCounter(go).read().values()) <= memory._COUNT
        semaphores = Semaphores(ObjectFields(go))
        for goroutine in GoroutineScanner(go).scan().goroutines:
            semaphores.add(goroutine)
        assert all(one.used <= one.size for one in semaphores.read())


STACK_OBJECTS: Final = (
    Parser(
        "stack-objects",
        (
            "ebpfprof.goruntime.goroutines.state_counts",
            "ebpfprof.goruntime.waits.channel_users",
            "ebpfprof.goruntime.waits.object_fields",
            "ebpfprof.goruntime.waits.semaphores",
            "ebpfprof.goruntime.waits.stack_words",
        ),
        ask_objects,
        object_seeds,
        share=100,
        allowed=(UnreadableMemory, SymbolizerError),
    ),
    Parser(
        "http2-requests",
        ("ebpfprof.goruntime.waits.http2_requests", "ebpfprof.goruntime.waits.request_memory"),
        ask_http2_requests,
        request_seeds,
        share=100,
        allowed=(UnreadableMemory, SymbolizerError),
    ),
    Parser(
        "http-requests",
        ("ebpfprof.goruntime.waits.http_requests",),
        ask_requests,
        request_seeds,
        share=100,
        allowed=(UnreadableMemory, SymbolizerError),
    ),
)
