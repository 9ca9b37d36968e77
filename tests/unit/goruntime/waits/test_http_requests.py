"""Requests of goroutines: what is believed of the target's memory, and what is not."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pytest

from ebpfprof.goruntime.waits.http_requests import RequestFields, RequestReader
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.goroutines import HttpRequest
from symbolizer.go.arguments import Argument

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine, GoroutineScanner
    from ebpfprof.goruntime.process import GoTarget

FIELDS: Final = RequestFields(current=8, conn=0, request=8, method=0, url=16, path=0, pattern=24)
BIAS: Final = 0x1000
PARK_PC, HANDLER_PC, SERVE_PC = 0x5000, 0x6000, 0x7000
# Addresses of frames, innermost first, and of objects.
PARKED, HANDLING, SERVING = 0xC000_0100, 0xC000_0200, 0xC000_0300
CONN, OTHER_CONN, RESPONSE, REQUEST, URL = (0xC000_1000 + 0x100 * n for n in range(5))
METHOD, PATH, PATTERN = (0xC000_2000 + 0x100 * n for n in range(3))
WAIT: Final = 7 << 40
ARGUMENT_AT: Final = SERVING + 16


class FakeMemory:
    """Memory of which only some words and texts are mapped."""

    def __init__(self) -> None:
        self.bytes: dict[int, int] = {}
        for address, word in {
            # Each frame has the address of the next one and a return address.
            PARKED: HANDLING,
            PARKED + 8: HANDLER_PC,
            HANDLING: SERVING,
            HANDLING + 8: SERVE_PC,
            ARGUMENT_AT: CONN,
            CONN + FIELDS.current: RESPONSE,
            RESPONSE + FIELDS.conn: CONN,
            RESPONSE + FIELDS.request: REQUEST,
            REQUEST + FIELDS.url: URL,
        }.items():
            self.put(address, word)
        self.put_text(REQUEST + FIELDS.method, METHOD, b"POST")
        self.put_text(URL + FIELDS.path, PATH, b"/items/17")
        self.put_text(REQUEST + 24, PATTERN, b"POST /items/{id}")

    def put(self, address: int, word: int) -> None:
        self.bytes |= {address + n: byte for n, byte in enumerate(struct.pack("<Q", word))}

    def put_text(self, address: int, at: int, text: bytes) -> None:
        self.put(address, at)
        self.put(address + 8, len(text))
        self.bytes |= {at + n: byte for n, byte in enumerate(text)}

    def read(self, address: int, size: int) -> bytes:
        try:
            return bytes(self.bytes[address + n] for n in range(size))
        except KeyError:
            raise UnreadableMemory("nothing is there") from None

    def read_records(
        self, addresses: npt.NDArray[np.uint64], kind: np.dtype[Any]
    ) -> npt.NDArray[Any]:
        records = np.zeros(len(addresses), kind)
        for number, address in enumerate(addresses.tolist()):
            try:
                data = self.read(address, kind.itemsize)
            except UnreadableMemory:
                continue
            records[number] = np.frombuffer(data, kind)[0]
        return records


def goroutine(**changes: object) -> SimpleNamespace:
    one = SimpleNamespace(
        goid=7,
        wait=WAIT,
        is_parked=True,
        pcs=(PARK_PC, HANDLER_PC, SERVE_PC),
        words=SimpleNamespace(bp=PARKED, sp=PARKED, hi=SERVING),
    )
    return SimpleNamespace(**{**vars(one), **changes})


def read(
    memory: FakeMemory,
    one: SimpleNamespace | None = None,
    *,
    is_live: bool = True,
    wait_then: int = WAIT,
) -> HttpRequest | None:
    def function_at(pc: int) -> SimpleNamespace:
        is_serve = pc == SERVE_PC - BIAS - 1
        return SimpleNamespace(name="net/http.(*conn).serve" if is_serve else "main.checkout")

    heads = SimpleNamespace(
        waits=np.array([3, wait_then], np.uint64), is_there=np.array([True, True])
    )
    binary = SimpleNamespace(
        function_at=function_at, arguments=lambda _: (Argument(0, 8, is_live), ", ...")
    )
    scanner = SimpleNamespace(memory=memory, read_table=lambda: heads)
    go = SimpleNamespace(binary=binary, load_bias=BIAS)
    reader = RequestReader(
        cast("GoTarget", go), cast("GoroutineScanner", scanner), lambda *_: FIELDS
    )
    return reader.read([cast("Goroutine", one or goroutine())]).get(7)


def test_the_request_of_a_goroutine_that_waits_in_its_handler() -> None:
    assert read(FakeMemory()) == HttpRequest("POST", "/items/17", "POST /items/{id}")


def test_nothing_is_read_of_goroutines_that_do_not_wait() -> None:
    assert read(FakeMemory(), goroutine(is_parked=False)) is None
    assert read(FakeMemory(), goroutine(pcs=(PARK_PC, HANDLER_PC))) is None
    assert read(FakeMemory(), goroutine(pcs=())) is None


def test_a_goroutine_that_went_on_meanwhile_may_handle_another_request() -> None:
    assert read(FakeMemory(), wait_then=WAIT + 1) is None


def test_a_slot_that_is_not_live_is_not_read() -> None:
    assert read(FakeMemory(), is_live=False) is None


@pytest.mark.parametrize(
    ("address", "word"),
    [
        (HANDLING + 8, SERVE_PC + 4),  # another return address: not the frame of serve
        (HANDLING, 0),
        (HANDLING, (1 << 64) - 8),
        (PARKED, PARKED),
        (ARGUMENT_AT, OTHER_CONN),
        (ARGUMENT_AT, 0),
        (CONN + FIELDS.current, 0),  # between two requests
        (CONN + FIELDS.current, 0x1234),
        (RESPONSE + FIELDS.conn, OTHER_CONN),
        (RESPONSE + FIELDS.request, 0),
        (RESPONSE + FIELDS.request, (1 << 64) - 1),
        (REQUEST + FIELDS.url, 1 << 63),
        (REQUEST + FIELDS.method, 1 << 62),
        (URL + FIELDS.path, 0x10),
        (URL + FIELDS.path + 8, 1 << 62),  # longer than what is mapped
    ],
)
def test_memory_that_makes_no_sense_gives_no_request(address: int, word: int) -> None:
    memory = FakeMemory()
    memory.put(address, word)
    assert read(memory) is None


@pytest.mark.parametrize("method", [b"", b"GET /", b"G\x00T", b"X" * 33, b"\xff"])
def test_what_is_no_method_is_no_request(method: bytes) -> None:
    memory = FakeMemory()
    memory.put_text(REQUEST + FIELDS.method, METHOD, method)
    assert read(memory) is None


def test_paths_may_be_any_bytes_and_long_ones_are_cut() -> None:
    memory = FakeMemory()
    memory.put_text(URL + FIELDS.path, 0xC000_8000, b"/\xff" + b"a" * 5000)
    found = read(memory)
    assert found is not None
    assert found.path.startswith("/\N{REPLACEMENT CHARACTER}aaa")
    assert len(found.path) == 2048
