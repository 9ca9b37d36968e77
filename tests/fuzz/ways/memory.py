"""Ways in through a target's memory: goroutines, copies of stacks, return addresses."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest import mock

from ebpfprof.export.tables import goroutines as goroutine_tables
from ebpfprof.goruntime import plugins
from ebpfprof.goruntime.goroutines import parked as parked_module
from ebpfprof.goruntime.goroutines import stack_reader, table
from ebpfprof.goruntime.goroutines.fields import FIELDS
from ebpfprof.goruntime.goroutines.labels import CUT, LabelReader
from ebpfprof.goruntime.goroutines.times_run import TimesRun
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.goruntime.samples.sampler import GoroutineSampler
from ebpfprof.goruntime.waits import stuck_check, watch
from ebpfprof.goruntime.waits.dump import dump
from ebpfprof.goruntime.waits.standing import OPEN_WAIT, Threshold
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile import hanging
from ebpfprof.profile.model import Mapping
from ebpfprof.profilers.cpu.unwinder import (
    MAX_DEPTH,
    Code,
    CodeLookup,
    Cursor,
    GoState,
    ProcessRules,
    RuleNumbers,
    StackPieces,
    interrupted_at,
    is_push,
    unwind,
)
from ebpfprof.profilers.waits.wait_stacks import StackTranslator
from ebpfprof.server import findings
from ebpfprof.tracing.state_numbers import StateNumbers
from symbolizer import SymbolizerError
from symbolizer.codeanalysis.cgo_callback import cgo_callback
from symbolizer.codeanalysis.globals import allgs_address, scheduling_latencies
from symbolizer.codeanalysis.park_sites import probe_sites
from symbolizer.unwind.go import GoUnwind
from tests.fuzz.driver import Parser
from tests.fuzz.ways.made_up import made_up_process
from tests.images.target import SavedTarget, Shown
from tests.programs import saved

_LIST, _G, _STACK = 0xC000_0000_00, 0xC000_0010_00, 0xC000_0100_00
_G_BYTES, _STACK_BYTES, _COUNT = 512, 256, 6
_BIAS = 0


@cache
def _go() -> GoTarget:
    binary = saved.binary("frames")
    start, end = binary.text_start, binary.text_end
    mappings = (Mapping(start, end, 0x1000, "/usr/bin/frames", "c0ffee"),)
    target = SavedTarget(Shown("/usr/bin/frames"))
    return GoTarget(
        target, target.exe_name, binary, _BIAS, mappings, probe_sites(binary), cgo_callback(binary)
    )


@cache
def _places() -> tuple[int, int | None]:
    return allgs_address(_go().binary), scheduling_latencies(_go().binary)


def parts_of(data: bytes) -> list[tuple[int, bytes]]:
    """Memory that holds the input: the list, then each goroutine with its stack."""
    parts = [(_places()[0], data[:24]), (_LIST, data[24:88])]
    at = 88
    for index in range(_COUNT):
        parts.append((_G + index * _G_BYTES, data[at : at + _G_BYTES]))
        at += _G_BYTES
        parts.append((_STACK + index * 4096, data[at : at + _STACK_BYTES]))
        at += _STACK_BYTES
    return parts


def field_codes() -> dict[str, str]:
    """How struct packs each field of runtime.g, by its name in Go."""
    letters = {"<u8": "Q", "<i8": "q", "<u4": "I", "u1": "B"}
    return {name: letters[code] for name, code in FIELDS.values()}


@cache
def goroutine_seeds() -> Sequence[bytes]:
    go = _go()
    layout, binary = go.binary.layout, go.binary
    (park,) = binary.functions_named("runtime.gopark")
    places = [_G + index * _G_BYTES for index in range(_COUNT)]
    data = struct.pack("<3Q", _LIST, _COUNT, 8) + struct.pack(f"<{_COUNT}Q", *places).ljust(
        64, b"\0"
    )
    codes = field_codes()
    (exercise,) = binary.functions_named("main.exercise")
    for index in range(_COUNT):
        sp = _STACK + index * 4096
        values = {
            **{"stack.hi": sp + _STACK_BYTES, "sched.sp": sp},
            **{"sched.pc": park.entry + 40, "sched.bp": sp + 16, "atomicstatus": 4},
            **{"goid": index + 1, "waitreason": 14},
        }
        g = bytearray(_G_BYTES)
        for name, value in values.items():
            struct.pack_into(f"<{codes[name]}", g, layout.offset("g", name), value)
        site = go.sites.parks[index % len(go.sites.parks)]
        stack = bytearray(_STACK_BYTES)
        struct.pack_into("<QQ", stack, 16, sp + 64, site.return_pc)
        struct.pack_into("<QQ", stack, 64, sp + 128, exercise.entry + 99)
        struct.pack_into("<QQ", stack, 128, 0, exercise.entry + 200)
        data += g + stack
    circle = bytearray(data)
    stack_at = 88 + _G_BYTES
    circle[stack_at + 64 : stack_at + 72] = circle[stack_at + 16 : stack_at + 24]
    return data, bytes(circle)


@contextmanager
def _without_pauses() -> Iterator[None]:
    """Nothing moves, so nobody waits for it to stand still."""
    with (
        mock.patch.multiple(table, PAUSE_S=0),
        mock.patch.multiple(parked_module, PAUSES_S=(0,) * 3),
        mock.patch.multiple(stack_reader, FEW=0),
        mock.patch.multiple(watch, HANGING=Threshold(5), SOON_S=0.0, FULL_SHARE=1e9),
        mock.patch.multiple(hanging, HANGS_NS=0),
        mock.patch.multiple(stuck_check, APART_S=(0.0, 0.0)),
    ):
        yield


def ask_goroutines(data: bytes) -> None:
    go = made_up_process(_go(), parts_of(data))
    with _without_pauses():
        found = parked_module.parked_goroutines(go, has_labels=True)
        looked = parked_module.ParkedScanner(go, has_labels=True)
        parked = looked.parked()
        assert looked.parked().keys() == parked.keys()
        assert (TimesRun(go).count() or 0) >= 0
        sampler = GoroutineSampler(go, has_labels=True)
        sampler.sample()
        assert sampler.standing(found.goroutines, OPEN_WAIT) == {}
        sampler.sample()
        standing = sampler.standing(found.goroutines, Threshold(2))
        assert standing.keys() <= {g.address for g in found.goroutines}
        totals = sampler.totals()
        with suppress(UnreadableMemory):  # a typed error is an answer, too
            read = table.GoroutineTable(go.target.memory, go.binary, _BIAS, "thread").read()
            assert len(StateNumbers(go.target.memory, go.binary.layout).of(read)) <= 8
        assert sum(each.hits for each in totals.states.values()) <= 2 * _COUNT
        assert all(len(state.pcs) <= _STACK_BYTES // 8 for state in totals.states)
    translator = StackTranslator(go)
    for each in (*found.goroutines, *parked.values()):
        # Frames lie one behind the other: more than fit into a stack are a circle.
        assert 0 < len(each.return_pcs) <= _STACK_BYTES // 8
        translator.stack("block", each.return_pcs)
    assert 0 <= found.cut_short <= len(found.goroutines)
    assert found.unreadable >= 0


def ask_all_goroutines(data: bytes) -> None:
    go = made_up_process(_go(), parts_of(data))
    with _without_pauses():
        found = dump(go, apart_s=0)
        watched = watch.GoroutineWatch(go)
        for _ in range(5):
            watched.sample(interval_s=0, full_every_s=3600)
    assert watched.found.goroutines == len(found.goroutines)
    assert sum(each.count for each in watched.found.hanging) <= _COUNT
    for finding in findings.as_json(watched.found):
        assert all(line.isprintable() for line in (finding["title"], *finding["lines"]))
    assert len(found.goroutines) + found.system <= _COUNT
    for each in found.goroutines:
        assert len(each.frames) <= _STACK_BYTES  # some calls are inlined
        assert 0 <= each.stood_ns <= max(found.apart_ns, 1)
    for each_alone in (False, True):
        text = goroutine_tables.render(found, each_alone=each_alone, width=80, color=False)
        assert all(each.isprintable() for each in text.splitlines())
        assert all(len(line) <= 80 for line in text.splitlines())
    goroutine_tables.encode(found)


# The labels of a goroutine: a byte for the kind, then memory that begins with them.

_LABELS = 0xC000_0000_00


@dataclass(frozen=True)
class _Block:
    data: bytes

    def read(self, address: int, size: int) -> bytes:
        at = address - _LABELS
        if not 0 <= at <= at + size <= len(self.data):
            raise UnreadableMemory(f"nothing at {address:#x}")
        return self.data[at : at + size]

    def bring(self, address: int, size: int) -> None:
        pass


def _strings(*where: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<QQ", _LABELS + at, length) for at, length in where)


@cache
def label_seeds() -> Sequence[bytes]:
    words = b"requestfirst" + b"v" * 200
    slices = struct.pack("<QQ", _LABELS + 16, 3) + _strings(
        (112, 7), (119, 5), (119, 5), (112, 7), (112, 0), (124, 200)
    )
    # A map of two buckets of 272 bytes, the second with an overflow bucket.
    text_at = 32 + 3 * 272
    key, value = (text_at, 7), (text_at + 7, 5)
    tables = struct.pack("<QQBBHIQ", _LABELS + 8, 9, 0, 1, 0, 0, _LABELS + 32)
    for occupied, overflow in ((2, 0), (8, _LABELS + 32 + 544), (1, 0)):
        tops = bytes([7] * occupied).ljust(8, b"\1")
        tables += tops + _strings(*[key] * 8, *[value] * 8) + struct.pack("<Q", overflow)
    return b"\0" + slices + words, b"\1" + tables + words


def ask_labels(data: bytes) -> None:
    layout = _go().binary.layout
    memory: Any = _Block(data[1:])
    version = "1.23" if data[:1] and data[0] & 1 else "1.27"
    found = LabelReader(memory, replace(layout, version=version)).read(_LABELS)
    assert len(found) <= 9
    for label in found:
        assert label.key
        assert label.value
        # Invalid UTF-8 takes four characters a byte.
        assert len(label.key) <= 4 * 64 + len(CUT)
        assert len(str(label.value)) <= 4 * 128 + len(CUT)


# The runtime's list of modules.


def ask_modules(data: bytes) -> None:
    binary = _go().binary
    go = made_up_process(_go(), [(binary.module_start, data)])
    assert len(plugins.plugin_modules(go.target, binary, _BIAS)) <= 64


@cache
def module_seeds() -> Sequence[bytes]:
    """The program alone, with one plugin, and with a list that leads back to its start."""
    start, layout = _go().binary.module_start, _go().binary.layout
    at, text = (layout.offset("moduledata", name) for name in ("next", "text"))
    found = []
    for following in ((0,), (start + 1024, 0), (start + 1024, start)):
        data = bytearray(2048)
        for module, then in zip((0, 1024), following, strict=False):
            struct.pack_into("<Q", data, module + at, then)
            struct.pack_into("<Q", data, module + text, start)
        found.append(bytes(data))
    return found


# Return addresses as the kernel copied them.


@cache
def address_seeds() -> Sequence[bytes]:
    go = _go()
    (exercise,) = go.binary.functions_named("main.exercise")
    (main,) = go.binary.functions_named("main.main")
    (send,) = go.binary.functions_named("runtime.semrelease1")
    outer = [exercise.entry + at for at in (70, 300, 555)] + [main.entry + 30]
    return [
        struct.pack(f"<{1 + len(outer)}Q", first, *outer)
        for first in (
            *(park.return_pc for park in go.sites.parks),
            send.entry + 60,
            0x7F00_0000_0000,
        )
    ]


def ask_addresses(data: bytes) -> None:
    count = min(len(data) // 8, 136)
    pcs = struct.unpack_from(f"<{count}Q", data)
    if not pcs:
        return
    translator = StackTranslator(_go())
    translator.look_up(pcs)
    for kind in ("block", "mutex"):
        stack = translator.stack(kind, pcs)
        if stack:
            assert len(stack.locations) <= 136
    assert translator.bare_stack(pcs).locations


# StackPieces of stacks, which user space unwinds.


class _CodeLookup(CodeLookup):
    def __init__(self) -> None:
        self._code = Code(GoUnwind(_go().binary), _BIAS)

    def code_at(self, address: int) -> Code | None:
        return self._code if address < 1 << 40 else None

    def is_code(self, address: int) -> bool:
        return address >> 44 == 7


@cache
def _process_rules() -> ProcessRules:
    return ProcessRules(_CodeLookup(), RuleNumbers(1 << 12))


@cache
def stack_seeds() -> Sequence[bytes]:
    """Registers, the runtime's records, then the stack at 0x7f0000000000."""
    (exercise,) = _go().binary.functions_named("main.exercise")
    (system,) = _go().binary.functions_named("runtime.systemstack")
    top = 0x7F00_0000_0000
    stack = b"".join(
        struct.pack("<QQ", top + 64 + 32 * at, exercise.entry + 60 + 31 * at) for at in range(30)
    )
    seeds = []
    for pc in (exercise.entry + 60, exercise.entry, system.entry + 70, 0x7000_0000_1234):
        go = (1, top, top + 512, top + 64, exercise.entry + 99, top + 32, pc, top + 48, pc, top)
        seeds.append(struct.pack("<3QB10Q", pc, top + 16, top + 32, 1, *go) + stack)
    return seeds


_HEAD = struct.Struct("<3QB10Q")


def ask_stack(data: bytes) -> None:
    pc, sp, bp, is_exact, *go = _HEAD.unpack(data[: _HEAD.size].ljust(_HEAD.size, b"\0"))
    copies = StackPieces([(0x7F00_0000_0000, data[_HEAD.size :])])
    rules = _process_rules()
    if len(rules.lines) > 1 << 12:
        rules.lines.clear()
        rules.new_lines.clear()
    found, _ = unwind(Cursor(pc, sp, bp, bool(is_exact & 1), bp), GoState(*go), copies, rules, [])
    assert len(found) <= MAX_DEPTH
    interrupted_at(pc or 1, rules)
    is_push(pc, rules)


MEMORY = (
    Parser(
        "goroutines",
        (
            "ebpfprof.goruntime.goroutines.fields",
            "ebpfprof.goruntime.goroutines.parked",
            "ebpfprof.goruntime.goroutines.times_run",
            "ebpfprof.goruntime.goroutines.table",
            "ebpfprof.goruntime.samples.idle_loops",
            "ebpfprof.goruntime.goroutines.stack_copies",
            "ebpfprof.goruntime.goroutines.stack_reader",
            "ebpfprof.goruntime.samples.sampler",
            "ebpfprof.goruntime.goroutines.seen_stacks",
            "ebpfprof.goruntime.goroutines.stack_starts",
            "ebpfprof.goruntime.samples.state_reader",
            "ebpfprof.goruntime.samples.state_sums",
            "ebpfprof.goruntime.goroutines.states",
            "ebpfprof.goruntime.waits.standing",
            "ebpfprof.tracing.state_numbers",
        ),
        ask_goroutines,
        goroutine_seeds,
        allowed=(UnreadableMemory, SymbolizerError),
    ),
    Parser(
        "all-goroutines",
        (
            "ebpfprof.goruntime.goroutines.all_goroutines",
            "ebpfprof.goruntime.goroutines.channels",
            "ebpfprof.goruntime.waits.stuck_check",
            "ebpfprof.goruntime.goroutines.stack_walk",
            "ebpfprof.goruntime.goroutines.frames",
            "ebpfprof.goruntime.waits.dump",
            "ebpfprof.goruntime.goroutines.stacks_by_tables",
            "ebpfprof.goruntime.waits.file_waits",
            "ebpfprof.goruntime.records",
            "ebpfprof.goruntime.waits.sleeps",
            "ebpfprof.goruntime.waits.thread_calls",
            "ebpfprof.goruntime.waits.waits_for",
            "ebpfprof.goruntime.waits.watch",
            "ebpfprof.profile.leaks",
        ),
        ask_all_goroutines,
        goroutine_seeds,
        share=150,
        allowed=(UnreadableMemory, SymbolizerError),
    ),
    Parser(
        "goroutine-labels",
        ("ebpfprof.goruntime.goroutines.labels",),
        ask_labels,
        label_seeds,
        allowed=(UnreadableMemory,),
    ),
    Parser("modules", ("ebpfprof.goruntime.plugins",), ask_modules, module_seeds),
    Parser(
        "addresses",
        ("ebpfprof.profilers.waits.wait_stacks",),
        ask_addresses,
        address_seeds,
        share=100,
    ),
    Parser("stacks", ("ebpfprof.profilers.cpu.unwinder",), ask_stack, stack_seeds, allowed=()),
)
