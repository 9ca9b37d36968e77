"""Ways in through what wakes goroutines: channels, their types, and the timers of processors."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Final

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.goruntime.waits.timers import TimerReader
from ebpfprof.goruntime.waits.wait_causes import CauseReader
from symbolizer.codeanalysis.globals import allp_address
from symbolizer.go.runtime_layout import RuntimeLayout
from tests.fuzz.driver import Parser
from tests.fuzz.ways import memory
from tests.fuzz.ways.made_up import made_up_memory

_BASE, _BYTES = 0xC000_0000_00, 1 << 15
# Where in the memory at _BASE the parts are; the rest of a P follows its beginning.
_LIST, _HEAP, _TIMERS, _G, _SUDOGS, _CHANNELS, _TYPE, _NAME, _P = (
    *(0x0, 0x100, 0x200, 0x800, 0x1000, 0x1800, 0x2000, 0x2100, 0x2200),
)
_COUNT: Final = 3


def _put(data: bytearray, layout: RuntimeLayout, struct_name: str, at: int, **words: int) -> None:
    for field, value in words.items():
        name = {"first_receiver": "recvq.first", "id_": "id"}.get(field, field)
        struct.pack_into("<Q", data, at + layout.offset(struct_name, name), value)


@cache
def cause_seeds() -> Sequence[bytes]:
    layout = memory._go().binary.layout
    data = bytearray(_BYTES)
    struct.pack_into("<Q", data, _LIST, _BASE + _P)
    heap = _P + layout.offset("p", "timers")
    stride = 8
    if "timers" in layout.structs:
        heap += layout.offset("timers", "heap")
        stride = layout.size("timerWhen")
    struct.pack_into("<2Q", data, heap, _BASE + _HEAP, 2)
    timer_bytes = layout.size("timer")
    for index in range(2):
        at = _TIMERS + index * timer_bytes
        struct.pack_into("<Q", data, _HEAP + index * stride, _BASE + at)
        _put(data, layout, "timer", at, when=1 << 40, period=index * 1_000_000_000)
        channel = _BASE + _CHANNELS + index * layout.size("hchan")
        struct.pack_into("<Q", data, at + layout.offset("timer", "arg") + 8, channel)
    for index in range(_COUNT):  # a goroutine for each channel, the last one with all of them
        sudog = _SUDOGS + index * layout.size("sudog")
        after = sudog - layout.size("sudog") if index == _COUNT - 1 else 0
        channel = _CHANNELS + index * layout.size("hchan")
        g = _g(index)
        _put(data, layout, "sudog", sudog, g=_BASE + g, c=_BASE + channel)
        _put(data, layout, "sudog", sudog, waitlink=_BASE + after if after else 0)
        _put(data, layout, "hchan", channel, elemtype=_BASE + _TYPE, first_receiver=_BASE + sudog)
        _put(data, layout, "g", g, goid=index + 1, waiting=_BASE + sudog)
        struct.pack_into("<I", data, g + layout.offset("g", "atomicstatus"), 4)
        data[g + layout.offset("g", "waitreason")] = layout.wait_reasons["Select"]
    struct.pack_into("<Q", data, _TYPE, 16)
    data[_TYPE + 23] = 20
    struct.pack_into("<3Q", data, _TYPE + 48, _BASE + _NAME, 0, 2)
    data[_NAME : _NAME + 4] = b"\0\x02os"
    whole = struct.pack("<3Q", _BASE + _LIST, 1, 1) + bytes(data)
    sleeps = bytearray(whole)
    sleeps[24 + _g(0) + layout.offset("g", "waitreason")] = layout.wait_reasons["Sleep"]
    circle = bytearray(whole)
    link = 24 + _SUDOGS + layout.offset("sudog", "waitlink")
    struct.pack_into("<Q", circle, link, _BASE + _SUDOGS)
    return whole, bytes(sleeps), bytes(circle)


def _g(index: int) -> int:
    return _G + index * 0x200


def ask_causes(data: bytes) -> None:
    go: GoTarget = memory._go()
    allp = allp_address(go.binary)
    assert allp is not None
    made_up = made_up_memory([(allp + go.load_bias, data[:24]), (_BASE, data[24:])])
    found = TimerReader(go, made_up).by_channel()
    assert all(each.when_ns > 0 and each.period_ns >= 0 for each in found.values())
    reader = CauseReader(go, made_up)
    places = [_BASE + _g(index) for index in range(_COUNT)]
    causes = reader.read(places)
    assert causes.keys() <= set(places)
    for cause in causes.values():
        assert cause.ends_ns >= 0
        assert cause.ends_ns or cause.signals or cause.others


WAIT_CAUSES = (
    Parser(
        "wait-causes",
        ("ebpfprof.goruntime.waits.timers", "ebpfprof.goruntime.waits.wait_causes"),
        ask_causes,
        cause_seeds,
        allowed=(),
    ),
)
