"""Ways in through files of Go programs: pclntab, build information, code, DWARF of locks."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from typing import Final
from zlib import crc32

from symbolizer import GoBinary, SymbolizerError, read_build_info
from symbolizer.codeanalysis.annotation_sites import annotation_sites, before_frame
from symbolizer.codeanalysis.cgo_callback import cgo_callback
from symbolizer.codeanalysis.globals import (
    allgs_address,
    allp_address,
    cpu_statistics_address,
    scheduler_address,
)
from symbolizer.codeanalysis.park_sites import probe_sites
from symbolizer.codeanalysis.runtime_locks import runtime_lock_sites
from symbolizer.codeanalysis.schedule_sites import schedule_sites
from symbolizer.codeanalysis.tls import g_offset
from symbolizer.codeanalysis.tracked_waits import tracked_wait_sites
from symbolizer.elf.relocations import RelocatedWords
from symbolizer.go.other_makers import GCCGO, TINYGO, is_packed, other_compiler
from symbolizer.go.version_scan import find_build_version
from symbolizer.locks.names import Caller, LockNames
from symbolizer.locks.variable_types import VariableTypes
from symbolizer.unwind.go import GoUnwind
from symbolizer.x86.disasm import decode, reachable, successors
from tests.fuzz.driver import Parser
from tests.fuzz.elfs import (
    PF_R,
    PF_W,
    PF_X,
    PT_DYNAMIC,
    SHT_SYMTAB,
    Load,
    Part,
    head_bytes,
    open_elf,
    small_elf,
)
from tests.fuzz.knowncode import remembering
from tests.fuzz.minigo import NEWEST, mini, real
from tests.fuzz.seeds import saved_seeds
from tests.fuzz.ways.dwarfwriter import GLOBAL, go_dwarf

_MINORS = ("1.19", "1.25", NEWEST)
_EXERCISE = "main.exercise"


# Tables: functions, lines, inline trees, stack depths.


@saved_seeds
def table_seeds() -> Sequence[bytes]:
    return [mini(real("frames", minor), {_EXERCISE, "runtime.gopark"}) for minor in _MINORS]


def ask_tables(data: bytes) -> None:
    binary = GoBinary.open(open_elf(data), allow_unknown_version=True)
    assert binary.text_start <= binary.text_end
    pcs = range(binary.text_start - 1, min(binary.text_end, binary.text_start + 1024), 33)
    with suppress(SymbolizerError):  # a typed error is an answer, too
        for pc, frames in binary.frames_many(pcs).items():
            function = binary.function_at(pc)
            assert bool(frames) == (function is not None)
            assert all(abs(frame.line) < 1 << 31 for frame in frames)
            assert all(-(1 << 31) <= frame.start_line < 1 << 31 for frame in frames)
    with suppress(SymbolizerError):  # a typed error is an answer, too
        last = binary.text_start
        for function in binary.functions():
            assert last <= function.entry <= function.end <= binary.text_end
            last = function.entry
    with suppress(SymbolizerError):  # a typed error is an answer, too
        for function in binary.functions():
            assert len(binary.arguments(function.entry + 40)) < 512
            assert binary.text_start <= binary.wrapped(function.entry) <= binary.text_end
    with suppress(SymbolizerError):  # a typed error is an answer, too
        for function in binary.functions_named(_EXERCISE):
            assert function.name == _EXERCISE
            assert -(1 << 31) <= binary.sp_delta(function.entry + 40) < 1 << 31
    rules = GoUnwind(binary)
    for pc in pcs[::5]:
        with suppress(SymbolizerError):  # a typed error is an answer, too
            assert all(each.start < each.end for each in rules.ranges(pc))


# Build information, in both of its forms.


@cache
def info_seeds() -> Sequence[bytes]:
    def info(modules: bytes) -> bytes:
        modules = b"0" * 16 + modules + b"1" * 16
        size = bytes([len(modules) & 0x7F | 0x80, len(modules) >> 7])
        return b"\xff Go buildinf:\x08\x02".ljust(32, b"\0") + b"\x08go1.27.3" + size + modules

    rich = info(
        b"path\texample.com/x\nmod\texample.com/x\tv1.2.3\th1:x=\ndep\tgolang.org/x/net\tv0.1.0\n"
        b'=>\t./net\t\nbuild\t-ldflags="-X \\"a=b\\x1b\\u202e\\U0010ffff\\n\\""\nbuild\t`a b`=c\n'
        b"build\t-race=true\n"
    )
    old = b"\xff Go buildinf:\x08\x00" + struct.pack("<QQ", 0x2040, 0x2060)
    old = old.ljust(64, b"\0") + struct.pack("<QQ", 0x2080, 6) + bytes(16)
    old += struct.pack("<QQ", 0x2090, 40) + bytes(16) + b"go1.16".ljust(16, b"\0") + b"2" * 40
    return [
        small_elf([Load(0x2000, each, PF_R | PF_W)], parts)
        for each in (rich, old)
        for parts in ([], [Part(".go.buildinfo", vaddr=0x2000, size=len(each))])
    ]


def ask_info(data: bytes) -> None:
    found = read_build_info(open_elf(data))
    if found:
        assert all(isinstance(each, str) for pair in found.settings.items() for each in pair)
        assert len(found.version) <= 256


# Programs of other compilers and packers.


@cache
def maker_seeds() -> Sequence[bytes]:
    tables = (b"\0libgo.so.21\0", b"\0main\0tinygo_longjmp\0", b"\0" + b"x" * 64)
    text = [Load(0x2000, b"UPX!".ljust(64, b"\0"), PF_R | PF_X)]
    return [
        small_elf(text, [Part(name, table)]) for name in (".dynstr", ".strtab") for table in tables
    ]


def ask_makers(data: bytes) -> None:
    elf = open_elf(data)
    assert other_compiler(elf) in ("", GCCGO, TINYGO)
    assert is_packed(elf) in (True, False)


# Words that the dynamic loader fills in.


@cache
def relocation_seeds() -> Sequence[bytes]:
    rows = [(0x3000 + 8 * at, 8, 0x1000 + at) for at in range(8)] + [(0x3010, 6, 7)]
    rela = b"".join(struct.pack("<QQQ", *row) for row in rows)
    dynamic = struct.pack("<8Q", 7, 0x4000, 8, len(rela), 9, 24, 0, 0)
    loads = [
        Load(0x3000, bytes(72), PF_R | PF_W),
        Load(0x4000, rela),
        Load(0x5000, dynamic, PF_R | PF_W),
        Load(0x5000, dynamic, kind=PT_DYNAMIC),
    ]
    return (small_elf(loads, [], is_pie=True),)


def ask_relocations(data: bytes) -> None:
    words = RelocatedWords(open_elf(data))
    for at in range(0x3000, 0x3040, 16):
        assert all(0 <= each < 1 << 64 for each in words.read(at, 2))
    assert len(words.addresses_of(0x1001, 4)) <= 4


# Code of the runtime, in which we find the places of probes.

_PARKING = (
    *("runtime.chansend", "runtime.chanrecv", "runtime.gopark", "runtime.mcall", "runtime.ready"),
    *("runtime.blockevent", "runtime.semacquire1", "runtime.semrelease1", "runtime.readyWithTime"),
    *("runtime.throw", "runtime.unlock", "runtime.unlock2", "runtime.unlockWithRank"),
    *("sync.runtime_SemacquireMutex", "internal/sync.runtime_SemacquireMutex"),
    *("runtime.goready", "runtime.goready.func1"),
)
_SCHEDULING = (
    *("runtime.park_m", "runtime.ready", "runtime.execute", "runtime.gdestroy", "runtime.goexit0"),
    *("runtime.goschedImpl", "runtime.gosched_m", "runtime.gopreempt_m", "runtime.goyield_m"),
    *("runtime.preemptPark", "runtime.newproc.func1", "runtime.runqput", "runtime.netpollready"),
    *("runtime.gcAssistAlloc1", "runtime.gcAssistAlloc.func1", "runtime.gcAssistAlloc.func2"),
    *("runtime.stopTheWorldWithSema", "runtime.startTheWorldWithSema"),
    *("runtime.gcBgMarkStartWorkers", "runtime.gcMarkTermination"),
)
_LOCKING = (
    *("runtime.lock2", "runtime.unlock2", "runtime.semasleep", "runtime.unlock2Wake"),
    *("runtime.systemstack", "runtime.morestack", "runtime.newstack", "runtime.mstart"),
    "runtime.mstart0",
)
_TRACKING = (
    *("runtime.casgstatus", "runtime.nanotime1", "runtime.semacquire1", "runtime.acquireSudog"),
    *("runtime.(*timeHistogram).record", "runtime.systemstack"),
)
_SMALL = (
    *("runtime.forEachG", "runtime.systemstack", "runtime.mcall", "runtime.asmcgocall"),
    *("runtime.cgocallback", "runtime.cgocallbackg", "gosave_systemstack_switch"),
    *("runtime.cgocall", "runtime.casgstatus", "runtime.(*timeHistogram).record"),
    *("runtime.gcMarkTermination", "runtime.(*cpuStats).accumulate"),
)


def _mini(target: str, names: Sequence[str], minor: str = NEWEST, mode: str = "trimpath") -> bytes:
    binary = real(target, minor, mode)
    have = {function.name for function in binary.functions()}
    return mini(binary, have & set(names))


@saved_seeds
def parking_seeds() -> Sequence[bytes]:
    return [_mini("frames", _PARKING, minor) for minor in ("1.19", NEWEST)]


@saved_seeds
def scheduling_seeds() -> Sequence[bytes]:
    return [_mini("frames", _SCHEDULING, minor) for minor in ("1.19", NEWEST)]


@saved_seeds
def locking_seeds() -> Sequence[bytes]:
    return (_mini("frames", _LOCKING),)


@saved_seeds
def tracking_seeds() -> Sequence[bytes]:
    return [_mini("frames", _TRACKING, minor) for minor in ("1.19", NEWEST)]


@saved_seeds
def small_seeds() -> Sequence[bytes]:
    return [_mini("cgocpu", _SMALL, mode="cgo"), _mini("frames", _SMALL, "1.19")]


def _binary(data: bytes) -> GoBinary:
    return GoBinary.open(open_elf(data))


def ask_parking(data: bytes) -> None:
    binary = _binary(data)
    with remembering():
        sites = probe_sites(binary)
    for park in sites.parks:
        for pc in (park.start_pc, park.call_pc, sites.wake_pc):
            assert binary.text_start <= pc < binary.text_end
    assert list(sites.parks) == sorted(sites.parks, key=lambda each: each.call_pc)


def ask_scheduling(data: bytes) -> None:
    binary = _binary(data)
    with remembering():
        found = schedule_sites(binary)
    addresses = [site.pc for site in found.sites]
    assert addresses == sorted(set(addresses))
    # An assist ends behind its call, which may be the last instruction.
    assert all(binary.text_start <= pc <= binary.text_end for pc in addresses)


def ask_annotating(data: bytes) -> None:
    binary = _binary(data)
    assert all(binary.text_start <= s.pc < binary.text_end for s in annotation_sites(binary).sites)
    for function in binary.functions():  # those that annotate begin as others do
        code = binary.elf.read(
            function.entry, min(function.end, function.entry + 512) - function.entry
        )
        pc = before_frame(decode(code, function.entry))
        assert pc is None or function.entry < pc < function.end


def ask_locking(data: bytes) -> None:
    binary = _binary(data)
    with remembering():
        sites = runtime_lock_sites(binary)
    for pc in (sites.sleep_pc, sites.wake_pc, *(each.call_pc for each in sites.unlocks)):
        assert binary.text_start <= pc < binary.text_end


def ask_tracking(data: bytes) -> None:
    binary = _binary(data)
    with remembering():
        sites = tracked_wait_sites(binary)
    for site in (*sites.begins, *sites.ends, *sites.runs):
        assert binary.text_start <= site.pc < binary.text_end


def ask_small(data: bytes) -> None:
    binary = _binary(data)
    asks: tuple[Callable[[GoBinary], object], ...] = (
        *(cgo_callback, g_offset),
        *(allgs_address, allp_address, scheduler_address, cpu_statistics_address),
    )
    for ask in asks:
        with suppress(SymbolizerError), remembering():  # a typed error is an answer, too
            ask(binary)


@saved_seeds
def code_seeds() -> Sequence[bytes]:
    binary = real("cgocpu", mode="cgo")
    names = ("runtime.chanrecv", "runtime.cgocallback", "runtime.mcall", "runtime.lock2")
    functions = [each for name in names for each in binary.functions_named(name)]
    return [binary.elf.read(each.entry, min(each.end - each.entry, 160)) for each in functions]


def ask_code(data: bytes) -> None:
    instructions = decode(data[:512], 0x401000)
    flow = successors(instructions)
    assert sum(each.size for each in instructions) <= len(data)
    if instructions:
        assert 0x401000 in reachable(flow, [0x401000])


@cache
def version_seeds() -> Sequence[bytes]:
    """The beginning of schedinit, and behind it the data of its operands."""
    text = b"\x48\x83\x3d\xf8\x0f\x00\x00\x00\x75\x0e\x48\x8d\x05\xf0\x1f\x00\x00"
    text += b"\x48\x89\x05\xe1\x0f\x00\x00\xc3"
    header = struct.pack("<QQQ", 0x3000, 8, 0x3000)
    loads = [
        Load(0x1000, text, PF_R | PF_X),
        Load(0x2000, header, PF_R | PF_W),
        Load(0x3000, b"go1.27.3 and more"),
    ]
    return (small_elf(loads, []),)


def ask_code_version(data: bytes) -> None:
    elf = open_elf(data)
    size = min(elf.segments[0].filesz, len(data))
    code = elf.read(elf.segments[0].vaddr, size)
    found = find_build_version(elf, RelocatedWords(elf), elf.segments[0].vaddr, code)
    assert len(found) <= 256


# Names of locks, from DWARF and symbols.


@saved_seeds
def lock_seeds() -> Sequence[bytes]:
    info, abbrevs, symbols, strings = go_dwarf(_EXERCISE)
    parts = [
        Part(".debug_info", info),
        Part(".debug_abbrev", abbrevs),
        Part(".symtab", symbols, kind=SHT_SYMTAB, link=".strtab"),
        Part(".strtab", strings, kind=3),
    ]
    return (mini(real("frames"), {_EXERCISE}, extra=parts),)


_LOCK_QUESTIONS: Final = tuple(
    product((_EXERCISE, "main.(*Cache).Get", "main.other.func1"), ("sync.Mutex", "sync.RWMutex"))
)


def ask_locks(data: bytes) -> None:
    binary = GoBinary.open(open_elf(data))
    names = LockNames(binary)
    variables = VariableTypes(binary.elf)
    offset = variables.type_of("main.global", GLOBAL)
    for _ in range(4):
        known = variables.at(offset)
        if known is None:
            break
        assert known.size >= 0
        assert variables.runtime_type(offset) >= 0
        offset = known.element or known.target or (known.fields[-1][2] if known.fields else 0)
    for address in (GLOBAL, GLOBAL + 40, GLOBAL + 9):
        assert isinstance(names.variable(address), str | None)
    # One question an input: each reads the same tables, most of the time all of them.
    function, kind = _LOCK_QUESTIONS[crc32(data) % len(_LOCK_QUESTIONS)]
    assert isinstance(names.field([Caller(function, binary.text_start + 4)], kind), str | None)


GO = (
    Parser(
        "go-tables",
        (
            *("symbolizer.go.binary", "symbolizer.go.pclntab", "symbolizer.go.pcvalue"),
            *("symbolizer.go.inline", "symbolizer.go.lookup", "symbolizer.go.name_index"),
            *("symbolizer.go.moduledata", "symbolizer.elf.table", "symbolizer.unwind.go"),
        ),
        ask_tables,
        table_seeds,
        frozen=head_bytes,
    ),
    Parser("build-info", ("symbolizer.go.buildinfo",), ask_info, info_seeds, frozen=head_bytes),
    Parser(
        "other-makers",
        ("symbolizer.go.other_makers",),
        ask_makers,
        maker_seeds,
        share=20,
        frozen=head_bytes,
    ),
    Parser(
        "relocations",
        ("symbolizer.elf.relocations",),
        ask_relocations,
        relocation_seeds,
        frozen=head_bytes,
    ),
    Parser(
        "probe-places",
        (
            *(
                "symbolizer.codeanalysis.park_sites",
                "symbolizer.codeanalysis.cheap_sites",
                "symbolizer.codeanalysis.semaphores",
                "symbolizer.codeanalysis.runtime_functions",
            ),
            "symbolizer.x86.call_sites",
        ),
        ask_parking,
        parking_seeds,
        share=40,
        frozen=head_bytes,
    ),
    Parser(
        "schedule-places",
        ("symbolizer.codeanalysis.schedule_sites", "symbolizer.codeanalysis.entry_sites"),
        ask_scheduling,
        scheduling_seeds,
        share=40,
        frozen=head_bytes,
    ),
    Parser(
        "annotation-sites",
        ("symbolizer.codeanalysis.annotation_sites",),
        ask_annotating,
        scheduling_seeds,
        share=60,
        frozen=head_bytes,
    ),
    Parser(
        "runtime-locks",
        ("symbolizer.codeanalysis.runtime_locks",),
        ask_locking,
        locking_seeds,
        share=40,
        frozen=head_bytes,
    ),
    Parser(
        "tracked-waits",
        ("symbolizer.codeanalysis.tracked_waits",),
        ask_tracking,
        tracking_seeds,
        share=40,
        frozen=head_bytes,
    ),
    Parser(
        "runtime-code",
        (
            "symbolizer.codeanalysis.cgo_callback",
            "symbolizer.codeanalysis.tls",
            "symbolizer.codeanalysis.globals",
            "symbolizer.go.stack_switch",
        ),
        ask_small,
        small_seeds,
        share=100,
        frozen=head_bytes,
    ),
    Parser("machine-code", ("symbolizer.x86.disasm",), ask_code, code_seeds),
    Parser(
        "version-in-code",
        ("symbolizer.go.version_scan",),
        ask_code_version,
        version_seeds,
        frozen=head_bytes,
    ),
    Parser(
        "lock-names",
        (
            *(
                "symbolizer.dwarf.entries",
                "symbolizer.locks.types",
                "symbolizer.locks.variable_types",
                "symbolizer.locks.names",
            ),
            *("symbolizer.locks.variables", "symbolizer.dwarf.units", "symbolizer.dwarf.abbrevs"),
        ),
        ask_locks,
        lock_seeds,
        frozen=head_bytes,
    ),
)
