"""Names of locks in package variables and on the heap, as the target prints them."""

from __future__ import annotations

import struct
from collections import defaultdict

import pytest

from symbolizer import ElfFile, GoBinary
from symbolizer.dwarf.constants import AT_TYPE, TAG_MEMBER, TAG_STRUCTURE, TAG_VARIABLE
from symbolizer.dwarf.entries import Dwarf
from symbolizer.elf.source import MemorySource
from symbolizer.locks.names import Caller, LockNames, _text
from symbolizer.locks.types import LockName, Types, package_of, without_type_arguments
from symbolizer.locks.variables import StaticPointers, loads
from tests.builds import builds, versions
from tests.unit.symbolizer.elf.elf_writer import PF_R, PF_W, ElfWriter, Load
from tests.unit.symbolizer.locks.locks_program import NEWEST, binary, path, said, uncompressed

pytestmark = pytest.mark.machine

BUILDS = (
    *(("1.19", mode) for mode in ("plain", "trimpath", "pie", "cgo", "cgopie")),
    ("1.23", "plain"),
    ("1.24", "plain"),
    *((NEWEST, mode) for mode in ("plain", "trimpath", "pie", "cgo", "cgopie")),
)

# The name by one function alone, where a second one is needed for the right name.
BY_ITSELF = {
    "main.(*left).swap": "{main.left.mu,main.right.mu}",
    "main.(*account).transfer": "main.account.{balance.mu,other.mu}",
    # Its own lock is preferred to one behind a pointer; here that is wrong.
    "main.(*server).drop": "main.server.mu",
}


def names(minor: str = NEWEST, mode: str = "plain") -> LockNames:
    return LockNames(binary(minor, mode))


def opened(data: bytes) -> LockNames:
    return LockNames(GoBinary.open(ElfFile.from_bytes(data)))


@pytest.mark.parametrize(("minor", "mode"), builds(*BUILDS))
def test_locks_in_package_variables_have_names(minor: str, mode: str) -> None:
    expected = said(minor, mode).variables
    assert len(expected) == 20
    found = names(minor, mode)
    assert {name: found.variable(address) for name, address in expected.items()} == {
        name: name for name in expected
    }


@pytest.mark.parametrize(("minor", "mode"), builds(*BUILDS))
def test_locks_on_the_heap_are_in_no_variable(minor: str, mode: str) -> None:
    found = names(minor, mode)
    elsewhere = said(minor, mode).elsewhere
    assert [found.variable(address) for address in elsewhere] == [None, None]


@pytest.mark.parametrize(("minor", "mode"), builds(*BUILDS))
def test_heap_locks_are_named_from_one_function(minor: str, mode: str) -> None:
    found = names(minor, mode)
    callers = said(minor, mode).callers
    assert len(callers) == 37
    names_found = [
        (caller.function, found.field([caller], kind) or "") for caller, kind, _ in callers
    ]
    assert names_found == [
        (caller.function, BY_ITSELF.get(caller.function, name)) for caller, _, name in callers
    ]


@pytest.mark.parametrize(("minor", "mode"), builds(*BUILDS))
def test_heap_locks_are_named_from_all_their_functions(minor: str, mode: str) -> None:
    found = names(minor, mode)
    groups: dict[tuple[str, str], list[Caller]] = defaultdict(list)
    for caller, kind, name in said(minor, mode).callers:
        groups[kind, name].append(caller)
    names_found = {
        (kind, name): found.field(callers, kind) or "" for (kind, name), callers in groups.items()
    }
    assert names_found == {(kind, name): name for kind, name in groups}


def test_the_target_has_a_function_that_is_inlined() -> None:
    program = binary(NEWEST, "plain")
    stacks = [
        [frame.function for frame in program.frames(caller.pc)]
        for caller, _, _ in said(NEWEST, "plain").callers
    ]
    assert ["main.lockOnly", "main.lockBeside"] in stacks


def test_functions_of_different_locks_share_no_name() -> None:
    callers = {caller.function: caller for caller, _, _ in said(NEWEST, "plain").callers}
    both = [callers["main.(*priceCache).get"], callers["main.(*left).alone"]]
    assert names().field(both, "sync.Mutex") is None
    # A function without a name does not remove the name of the other.
    both = [callers["main.lockAny"], callers["main.(*left).alone"]]
    assert names().field(both, "sync.Mutex") == "main.left.mu"


def test_the_mutex_in_a_rwmutex_is_locked_by_package_sync() -> None:
    (lock,) = binary(NEWEST, "plain").functions_named("sync.(*RWMutex).Lock")
    caller = Caller(lock.name, lock.entry)
    assert names().field([caller], "sync.Mutex") == "sync.RWMutex.w"
    assert names().field([caller], "sync.RWMutex") is None


def test_a_generic_function_is_found_by_its_short_name() -> None:
    callers = [each for each, _, _ in said(NEWEST, "plain").callers if ").put" in each.function]
    assert len(callers) == 2
    for caller in callers:
        short = Caller(without_type_arguments(caller.function), caller.pc)
        assert short.function == "main.(*box[...]).put"
        assert names().field([short], "sync.Mutex") == "main.box[...].mu"
        nowhere = Caller(short.function, 0)
        assert names().field([nowhere], "sync.Mutex") == "main.box[...].mu"


def test_a_wrapper_of_an_unnamed_type_has_a_name() -> None:
    wrappers = [
        function
        for function in binary(NEWEST, "plain").functions()
        if function.name.startswith("go:(*struct ") and function.name.endswith(" }).Lock")
    ]
    assert len(wrappers) == 1
    callers = [Caller(wrapper.name, wrapper.entry) for wrapper in wrappers]
    assert names().field(callers, "sync.Mutex") is None


def test_locks_of_internal_sync_have_names() -> None:
    """internal/sync.HashTrieMap, Go 1.24 and later, can't import sync."""
    (caller,) = (
        Caller(function.name, function.entry)
        for function in binary(NEWEST, "plain").functions()
        if function.name
        == "internal/sync.(*HashTrieMap[go.shape.interface {},go.shape.interface {}]).LoadOrStore"
    )
    assert names().field([caller], "sync.Mutex") == (
        "{internal/sync.HashTrieMap[...].initMu,internal/sync.indirect[...].mu}"
    )


def test_code_that_loads_a_word_of_data_is_read() -> None:
    data = ElfWriter([Load(0x1000, bytes(64), PF_R), Load(0x2000, bytes(64), PF_R | PF_W)])
    elf = ElfFile.from_bytes(data.build())
    to_data, to_code = struct.pack("<i", 0x1000), struct.pack("<i", 0)
    code = (
        b"\x48\x8b\x05" + to_data  # mov rax, [rip + 0x1000]
        + b"\x4c\x8b\x3d" + to_data  # mov r15, [rip + 0x1000]
        + b"\x48\x8d\x05" + to_data  # lea rax, [rip + 0x1000]
        + b"\x48\x8b\x05" + to_code  # mov rax, [rip]
        + b"\x48\x8b\x40\x10"  # mov rax, [rax + 16]
        + b"\x48\x8b\x05\x00"  # cut off
    )  # fmt: skip
    assert loads(elf, 0x1000, code) == [(0x1000, 0x2007), (0x1007, 0x200E)]


def test_if_addresses_contradict_the_symbol_names_the_lock() -> None:
    data = bytearray(uncompressed(NEWEST))
    elf = ElfFile.from_bytes(bytes(data))
    (die,) = Dwarf(elf).find("main.plain", (TAG_VARIABLE,))
    at = data.index(b"main.plain\0", elf.sections[".debug_info"].offset + die.offset)
    # Behind the name: the length of the location, DW_OP_addr, the address.
    data[at + len("main.plain\0") + 2] ^= 8
    address = said(NEWEST, "plain").variables["main.plain.first.mu"]
    assert opened(bytes(data)).variable(address) == "main.plain+0x18"


def test_elements_end_with_their_slice_or_pointer() -> None:
    dwarf = Dwarf(binary(NEWEST, "plain").elf)
    types = Types(dwarf)
    listed, pool = (
        types.of(dwarf.find(name, (TAG_VARIABLE,))[0]) for name in ("main.listed", "main.pool")
    )
    last = types.element(listed, 3, 47)
    assert last is not None
    assert (last.path, last.rest) == ("[2].mu", 7)
    assert types.element(listed, 3, 48) is None
    assert types.element(listed, 3, -1) is None
    first = types.element(pool, 1, 24)
    assert first is not None
    assert first.path == ".first.mu"
    assert types.element(pool, 1, 168) is None


def test_functions_that_do_not_exist_name_no_lock() -> None:
    for name in ("main.nothing", "main.(*nothing).at", "", ".", "main.\0", "go:(*struct {}).Lock"):
        assert names().field([Caller(name, 1)], "sync.Mutex") is None
    assert names().field([], "sync.Mutex") is None


def test_addresses_without_a_lock_have_no_name() -> None:
    address = said(NEWEST, "plain").variables["main.plain.first.mu"]
    found = names()
    assert found.variable(address - 8) == "main.plain.first.count"
    assert found.variable(address - 5) == "main.plain.first.count+0x3"
    assert found.variable(0) is None
    assert found.variable((1 << 64) - 1) is None
    assert found.variable(binary(NEWEST, "plain").text_start) is None


class CountingSource(MemorySource):
    """A file that counts the bytes that are read."""

    read_bytes = 0

    def read(self, offset: int, size: int) -> bytes:
        self.read_bytes += size
        return super().read(offset, size)


@pytest.mark.parametrize("minor", versions("1.19", NEWEST))
def test_lookups_read_nothing_of_a_stripped_program(minor: str) -> None:
    source = CountingSource(path(minor, "stripped").read_bytes())
    found = LockNames(GoBinary.open(ElfFile(source)))
    read = source.read_bytes
    answers = said(minor, "stripped")
    for address in (*answers.variables.values(), *answers.elsewhere):
        assert found.variable(address) is None
    for caller, kind, _ in answers.callers:
        assert found.field([caller], kind) is None
    assert source.read_bytes == read


def test_dwarf_is_not_read_before_the_first_lookup() -> None:
    source = CountingSource(path(NEWEST, "plain").read_bytes())
    program = GoBinary.open(ElfFile(source))
    read = source.read_bytes
    LockNames(program)
    assert source.read_bytes == read


@pytest.mark.parametrize("minor", versions("1.19", NEWEST))
def test_a_program_with_symbols_but_no_dwarf(minor: str) -> None:
    data = path(minor, "plain").read_bytes()
    assert data.count(b".debug_info\0") == 1
    found = opened(data.replace(b".debug_info\0", b".xebug_info\0"))
    variables = said(minor, "plain").variables
    assert found.variable(variables["main.global"]) == "main.global"
    assert found.variable(variables["main.plain.first.mu"]) == "main.plain+0x18"
    assert found.variable(variables["main.pool.first.mu"]) is None
    for caller, kind, _ in said(minor, "plain").callers:
        assert found.field([caller], kind) is None


def test_dwarf_that_cannot_be_read_leaves_the_symbols() -> None:
    data = bytearray(uncompressed(NEWEST))
    abbrev = ElfFile.from_bytes(bytes(data)).sections[".debug_abbrev"]
    data[abbrev.offset : abbrev.offset + abbrev.size] = b"\xff" * abbrev.size
    found = opened(bytes(data))
    assert (
        found.variable(said(NEWEST, "plain").variables["main.plain.first.mu"]) == "main.plain+0x18"
    )
    for caller, kind, _ in said(NEWEST, "plain").callers:
        assert found.field([caller], kind) is None


def test_types_that_contain_themselves_are_handled() -> None:
    """main.tree has two of itself as fields, and main.link one."""
    data = bytearray(uncompressed(NEWEST))
    elf = ElfFile.from_bytes(bytes(data))
    info = elf.sections[".debug_info"].offset
    dwarf = Dwarf(elf)
    changed = 0
    for name, pointers in (("main.tree", 2), ("main.link", 1)):
        for struct_type in dwarf.find(name, (TAG_STRUCTURE,)):
            members = [each for each in dwarf.children(struct_type) if each.tag == TAG_MEMBER]
            wanted = [each for each in members if each.name in ("left", "right", "next")]
            assert len(wanted) == pointers
            for member in wanted:
                # Behind the reference is the flag of embedded fields.
                at = info + member.end - 5
                assert struct.unpack_from("<I", data, at)[0] == member.number(AT_TYPE)
                struct.pack_into("<I", data, at, struct_type.offset)
                changed += 1
    assert changed == 3
    found = opened(bytes(data))
    said_of = said(NEWEST, "plain")
    for caller, kind, _ in said_of.callers:
        if caller.function == "main.(*tree).visit":
            assert found.field([caller], kind) == "main.node.mu"
    changed_types = Types(Dwarf(ElfFile.from_bytes(bytes(data))))
    (tree,) = dwarf.find("main.tree", (TAG_STRUCTURE,))
    assert changed_types.locks(tree, ("sync.Mutex",), "main", "") == []
    assert changed_types.place(tree, 0).path == ".left" * 12


def test_a_slice_of_itself_is_handled() -> None:
    data = bytearray(uncompressed(NEWEST))
    elf = ElfFile.from_bytes(bytes(data))
    dwarf = Dwarf(elf)
    (slices,) = dwarf.find("[]main.inner", (TAG_STRUCTURE,))
    first = next(dwarf.children(slices))
    at = elf.sections[".debug_info"].offset + first.end - 5
    assert struct.unpack_from("<I", data, at)[0] == first.number(AT_TYPE)
    struct.pack_into("<I", data, at, slices.offset)
    assert Types(dwarf).pointee(slices) is not None
    types = Types(Dwarf(ElfFile.from_bytes(bytes(data))))
    assert types.pointee(slices) is None
    assert (
        opened(bytes(data)).variable(said(NEWEST, "plain").variables["main.listed[2].mu"]) is None
    )


def test_data_at_the_end_of_the_address_space_is_handled() -> None:
    start = (1 << 64) - 64
    words = struct.pack("<8Q", *range(start, start + 64, 8))
    elf = ElfFile.from_bytes(ElfWriter([Load(start, words, PF_R | PF_W)]).build())
    near = list(StaticPointers(elf).near((1 << 64) - 1))
    assert near == [(value, value) for value in range(start + 56, start - 8, -8)]


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symbolizer.dwarf.entries.MAX_WORK", 100)
    found = names()
    for caller, kind, _ in said(NEWEST, "plain").callers:
        assert found.field([caller], kind) is None


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("main.main", "main"),
        ("net/http.(*Server).Serve.func1", "net/http"),
        ("gopkg.in/yaml%2ev3.Unmarshal", "gopkg.in/yaml%2ev3"),
        ("main.(*box[go.shape.struct { a/b.c d/e.F }]).put", "main"),
        ("main.sum[a/b.T]", "main"),
        ("go:(*struct { sync.Mutex }).Lock", ""),
        ("", ""),
    ],
)
def test_the_package_of_a_name_is_found(name: str, package: str) -> None:
    assert package_of(name) == package


def test_several_names_are_joined() -> None:
    fields = [LockName("main.T", f".{field}") for field in "abcde"]
    assert _text([]) is None
    assert _text(fields[:1]) == "main.T.a"
    assert _text(fields[:4]) == "main.T.{a,b,c,d}"
    assert _text(fields) == "main.T.{a,b,c,d,...}"
    others = [LockName(f"main.{base}", ".mu") for base in "ABCDE"]
    assert _text(others[:2]) == "{main.A.mu,main.B.mu}"
    assert _text(others) is None
