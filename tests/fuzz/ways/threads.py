"""Ways in through a target's list of threads."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Final

from ebpfprof.goruntime.goroutines.thread_list import ThreadList
from ebpfprof.goruntime.goroutines.threads import AllThreads, GoThread
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.model import Sample
from ebpfprof.profilers.goroutines.goroutine_stacks import GoroutineStacks
from ebpfprof.profilers.goroutines.kinds import THREADCREATE
from ebpfprof.profilers.goroutines.thread_stacks import ThreadStacks
from ebpfprof.server import thread_text
from symbolizer import GoBinary, SymbolizerError
from symbolizer.codeanalysis.thread_globals import allm_address
from tests.fuzz.driver import Parser
from tests.fuzz.elfs import head_bytes, open_elf
from tests.fuzz.minigo import mini, real
from tests.fuzz.seeds import saved_seeds
from tests.fuzz.ways import memory
from tests.fuzz.ways.made_up import made_up_memory

_HEAP: Final = 0xC000_0000_00
_NAMES: Final = {"runtime.mcommoninit"}


@cache
def list_seeds() -> Sequence[bytes]:
    go = memory._go()
    layout = go.binary.layout
    size = layout.size("m")
    body = b""
    for number in range(3):
        words = bytearray(size)
        entry = next(iter(go.binary.functions())).entry + go.load_bias
        for field, value in (
            *(("procid", 100 + number), ("curg", _HEAP + 8 * number), ("createstack", entry)),
            *(("alllink", _HEAP + (number + 1) * size if number < 2 else 0),),
        ):
            struct.pack_into("<Q", words, layout.offset("m", field), value)
        body += bytes(words)
    return (struct.pack("<Q", _HEAP) + body, struct.pack("<Q", 0))


def ask_list(data: bytes) -> None:
    go = memory._go()
    data = data.ljust(8, b"\0")
    head = allm_address(go.binary) + go.load_bias
    stub = made_up_memory([(head, data[:8]), (_HEAP, data[8:])])
    found = ThreadList(go.binary, go.load_bias, 1).read(stub)
    assert len({each.address for each in found}) == len(found)
    stacks = ThreadStacks(GoroutineStacks(go))
    threads = [GoThread("idle", "", None, each.creation) for each in found]
    assert stacks.counted(AllThreads(threads, 0)).total() == len(found)
    made = stacks.created(each.creation for each in threads)
    profile = THREADCREATE.make_profile(
        [Sample(stack, (count,)) for stack, count in made.items()], (), time_ns=0, duration_ns=0
    )
    assert thread_text.text(profile, go.binary, go.load_bias).startswith("threadcreate profile: ")


@saved_seeds
def code_seeds() -> Sequence[bytes]:
    return [mini(real("threads", minor), _NAMES) for minor in ("1.19", "1.27")]


def ask_code(data: bytes) -> None:
    assert allm_address(GoBinary.open(open_elf(data))) % 8 == 0


THREADS: Final = (
    Parser(
        "thread-list",
        (
            "ebpfprof.goruntime.goroutines.thread_list",
            "ebpfprof.profilers.goroutines.thread_stacks",
            "ebpfprof.server.thread_text",
        ),
        ask_list,
        list_seeds,
        allowed=(UnreadableMemory, SymbolizerError),
    ),
    Parser(
        "thread-globals",
        ("symbolizer.codeanalysis.thread_globals",),
        ask_code,
        code_seeds,
        share=20,
        frozen=head_bytes,
    ),
)
