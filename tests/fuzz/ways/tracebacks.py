"""Ways in through goroutines as tracebacks show them: stacks walked by tables, their arguments."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache

from ebpfprof.export import traceback_text
from ebpfprof.export.goroutine_counts import counted, samples
from ebpfprof.goruntime.goroutines import tracebacks
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.tracebacks import TracebackStyle
from ebpfprof.server import goroutine_text
from symbolizer import Function, GoBinary, SymbolizerError
from symbolizer.go.arguments import Argument, decoded
from tests.fuzz.driver import Parser
from tests.fuzz.ways import memory
from tests.fuzz.ways.made_up import made_up_process
from tests.fuzz.ways.text import check_shown

_MOST_FRAME_BYTES = 48


def _frames(binary: GoBinary) -> Iterator[tuple[Function, int, int]]:
    """Functions with arguments and small frames: a return address in each, and the frame's size."""
    for function in binary.functions():
        pc = function.entry + (function.end - function.entry) * 2 // 3
        size = binary.sp_delta(pc)
        if 0 <= size <= _MOST_FRAME_BYTES and binary.arguments(pc - 1):
            yield function, pc, size


@cache
def traceback_seeds() -> Sequence[bytes]:
    """Goroutines with several frames each, in several states; one has labels."""
    go = memory._go()
    layout, binary = go.binary.layout, go.binary
    frames = iter(_frames(binary))
    places = [memory._G + index * memory._G_BYTES for index in range(memory._COUNT)]
    data = struct.pack("<3Q", memory._LIST, memory._COUNT, 8)
    data += struct.pack(f"<{memory._COUNT}Q", *places).ljust(64, b"\0")
    codes = memory.field_codes()
    for index, status in enumerate((4, 3, 1, 0x1004, 10, 9)):
        sp = memory._STACK + index * 4096
        stack = bytearray(memory._STACK_BYTES)
        _, first_pc, size = next(frames)
        at = size
        while True:
            _, pc, size = next(frames)
            struct.pack_into("<Q", stack, at, pc)
            if at + 8 + size + 8 > len(stack) - 8:
                break
            at += 8 + size
        values = {
            **{
                "stack.hi": sp + len(stack),
                "sched.sp": sp,
                "sched.pc": first_pc,
                "goid": index + 1,
            },
            **{"atomicstatus": status, "waitreason": 14 + index, "waitsince": 1, "gopc": first_pc},
            **{"startpc": first_pc, "lockedm": index % 2, "labels": sp if index == 2 else 0},
            **{"bubble": sp + 8 if index == 3 else 0},
        }
        if status == 3:
            values |= {"syscallsp": sp, "syscallpc": first_pc}
        g = bytearray(memory._G_BYTES)
        for name, value in values.items():
            struct.pack_into(f"<{codes[name]}", g, layout.offset("g", name), value)
        data += g + stack
    return (data,)


def ask_tracebacks(data: bytes) -> None:
    go = made_up_process(memory._go(), memory.parts_of(data))
    layout = go.binary.layout
    style = TracebackStyle(layout.tracebacks, True, layout.profile_stacks.max_depth)
    with memory._without_pauses():
        reader = tracebacks.TracebackReader(
            go.target, go.binary, go.load_bias, has_arguments=True, has_labels=True
        )
        assert 0 <= reader.count() <= memory._COUNT
        found = list(reader.read())
    assert len(found) <= memory._COUNT
    for each in found:
        # Frames lie one behind the other.
        assert len(each.frames) <= memory._STACK_BYTES // 8
        assert each.waited_ns >= 0
    text = traceback_text.text(found, style).decode()
    check_shown(text.replace("\t", ""))
    assert text.count("goroutine ") >= len(found)
    counts = counted(found, style)
    assert sum(count.count for count in counts) == len(found)
    check_shown(goroutine_text.text(counts, style.rules, style.most_profiled).replace("\t", ""))
    assert sum(sample.values[0] for sample in samples(counts, go.mappings)) == len(found)


# The arguments of a function: how much is a program, whether there is liveness, then both.


@cache
def argument_seeds() -> Sequence[bytes]:
    program = bytes(
        [0, 8, 0xFE, 8, 4, 12, 1, 0xFD, 0xFE, 0xFE, 16, 8, 0xFC, 0xFD, 0xFD, 0xFB, 0xFF]
    )
    live = bytes([8, 0b101, 0xFF])
    return [bytes([len(program), has]) + program + live for has in (0, 1)]


def ask_arguments(data: bytes) -> None:
    size, has_liveness, *_ = data.ljust(2, b"\0")
    program, live = data[2 : 2 + size], data[2 + size :]
    found = decoded(program, live, has_liveness=bool(has_liveness & 1))
    values = [each for each in found if isinstance(each, Argument)]
    assert all(0 <= each.offset < 0xFB and 0 <= each.size <= 8 for each in values)
    texts = "".join(each for each in found if isinstance(each, str))
    assert set(texts) <= set("{}, ._")
    assert has_liveness & 1 or all(each.is_live for each in values)


TRACEBACKS = (
    Parser(
        "tracebacks",
        (
            "ebpfprof.goruntime.goroutines.tracebacks",
            "ebpfprof.goruntime.goroutines.table_walk",
            "ebpfprof.goruntime.goroutines.call_sites",
        ),
        ask_tracebacks,
        traceback_seeds,
        allowed=(UnreadableMemory, SymbolizerError),
    ),
    Parser("arguments", ("symbolizer.go.arguments",), ask_arguments, argument_seeds),
)
