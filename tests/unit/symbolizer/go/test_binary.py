"""Whole Go programs: functions, frames and calls, for each way to link and strip."""

from __future__ import annotations

import struct
from itertools import product
from typing import Final

import capstone
import pytest

from symbolizer import (
    ElfFile,
    FuncRole,
    GoBinary,
    GoTableError,
    NotGoError,
    UnsupportedGoVersion,
)
from tests.builds import GENERIC, NEWEST, builds, in_full, versions
from tests.toolchains import MINORS, version_of
from tests.unit.symbolizer.elf.elf_writer import PF_R, PF_X, ElfWriter, Load, without_sections
from tests.unit.symbolizer.go_programs import (
    FRAMES,
    binary,
    module_vaddr,
    only,
    program,
    without_values_in_place,
)

SPWRITE: Final = 2


def with_version(minor: str, version: bytes) -> bytes:
    """A program that names another version, both in the build information and in the code."""
    own = f"go{version_of(minor)}".encode()
    assert len(own) == len(version)
    assert own in program(minor)
    return program(minor).replace(own, version)


def answers(data: bytes) -> object:
    """All functions of a program, and the frames in the middle of each."""
    found = GoBinary.open(ElfFile.from_bytes(data))
    functions = list(found.functions())
    return functions, found.frames_many((f.entry + f.end) // 2 for f in functions)


@pytest.mark.parametrize("minor", versions())
def test_open_names_the_version(minor: str) -> None:
    found = binary(minor)
    assert str(found.version) == f"go{version_of(minor)}"
    assert found.layout.version == minor
    assert found.build_info is not None
    assert found.build_info.settings.get("GOARCH", "amd64") == "amd64"  # not in Go 1.17


@pytest.mark.parametrize(
    ("minor", "mode"),
    [(NEWEST, "plain"), (NEWEST, "pie"), *in_full(*product(MINORS[:-1], ("plain", "pie")))],
)
def test_answers_are_the_same_without_section_headers(minor: str, mode: str) -> None:
    data = program(minor, mode)
    assert answers(without_sections(data)) == answers(data)


@pytest.mark.parametrize(
    ("minor", "mode"),
    [(NEWEST, "pie"), *in_full(("1.25", "pie"), ("1.25", "cgopie"), (NEWEST, "cgopie"))],
)
def test_relocated_words_may_be_zero_in_the_file(minor: str, mode: str) -> None:
    data = program(minor, mode)
    wiped = without_values_in_place(data)
    assert answers(wiped) == answers(data)
    assert answers(without_sections(wiped)) == answers(data)


@pytest.mark.parametrize(("minor", "mode"), builds(*product(MINORS, ("plain", "stripped", "pie"))))
def test_version_of_a_program_without_build_information(minor: str, mode: str) -> None:
    data = program(minor, mode).replace(b"\xff Go buildinf:", bytes(14))
    found = GoBinary.open(ElfFile.from_bytes(data))
    assert found.build_info is None
    assert str(found.version) == f"go{version_of(minor)}"


@pytest.mark.full
def test_version_of_a_relocated_program_without_build_information() -> None:
    data = without_values_in_place(program(NEWEST, "cgopie"))
    found = GoBinary.open(ElfFile.from_bytes(data.replace(b"\xff Go buildinf:", bytes(14))))
    assert str(found.version) == f"go{version_of(NEWEST)}"


@pytest.mark.parametrize(
    ("minor", "version"),
    [(NEWEST, b"go1.28.3"), *in_full((NEWEST, b"go1.99.1"))],
)
def test_unknown_versions_are_refused_unless_allowed(minor: str, version: bytes) -> None:
    elf = ElfFile.from_bytes(with_version(minor, version))
    with pytest.raises(UnsupportedGoVersion, match=version.decode()):
        GoBinary.open(elf)
    found = GoBinary.open(elf, allow_unknown_version=True)
    assert str(found.version) == version.decode()
    assert list(found.functions()) == list(binary(minor).functions())


@pytest.mark.parametrize(
    ("minor", "version"), [(NEWEST, b"go1.19.3"), *in_full(("1.19", b"go1.21.8"))]
)
def test_a_version_that_contradicts_pclntab_is_refused(minor: str, version: bytes) -> None:
    with pytest.raises(GoTableError, match="contradicts"):
        GoBinary.open(ElfFile.from_bytes(with_version(minor, version)))


def test_a_program_without_a_version_is_refused() -> None:
    with pytest.raises(UnsupportedGoVersion, match="does not name"):
        GoBinary.open(ElfFile.from_bytes(with_version(NEWEST, b"??1.27.3")))


def test_the_error_for_an_old_pclntab_names_its_go_version() -> None:
    data = program()
    table = data.index(struct.pack("<IHBB", 0xFFFFFFF1, 0, 1, 8))
    old = data[:table] + struct.pack("<I", 0xFFFFFFFB) + data[table + 4 :]
    for changed in (old, without_sections(old)):
        with pytest.raises(UnsupportedGoVersion, match=r"Go 1\.2 to 1\.15"):
            GoBinary.open(ElfFile.from_bytes(changed))


def test_a_program_that_is_not_go() -> None:
    elf = ElfFile.from_bytes(ElfWriter([Load(0x1000, b"\x90" * 100, PF_R | PF_X)]).build())
    with pytest.raises(NotGoError):
        GoBinary.open(elf)


def test_a_table_without_moduledata() -> None:
    found = binary()
    offset = found.elf.vaddr_to_offset(module_vaddr(found.elf))
    data = program()
    with pytest.raises(GoTableError, match="no moduledata"):
        GoBinary.open(ElfFile.from_bytes(data[:offset] + bytes(8) + data[offset + 8 :]))


def test_functions_by_name_and_by_address() -> None:
    found = binary()
    functions = list(found.functions())
    assert functions == sorted(functions, key=lambda function: function.entry)
    main = only(found, "main.main")
    assert functions[main.index] == main
    assert found.function_at(main.entry) == main
    assert found.function_at(main.end - 1) == main
    after = found.function_at(main.end)
    assert after is not None
    assert (after.index, after.entry) == (main.index + 1, main.end)
    before = found.function_at(main.entry - 1)
    assert before is not None
    assert before.end == main.entry
    assert found.functions_named("main.mai") == ()
    assert found.functions_named("ain.main") == ()
    assert found.functions_named("no such\0name") == ()
    # The first name of the table has no zero byte before it.
    assert functions[0] in found.functions_named(functions[0].name)


def test_every_function_is_found_by_its_name() -> None:
    found = binary()
    for function in list(found.functions())[::37]:
        assert function in found.functions_named(function.name)


def test_addresses_outside_of_go_text() -> None:
    found = binary()
    end = list(found.functions())[-1].end
    outside = [-1, 0, found.text_start - 1, end, found.text_end + (1 << 32), 1 << 63, 1 << 70]
    for pc in outside:
        assert found.function_at(pc) is None
        assert found.frames(pc) == ()
        assert found.sp_delta(pc) == -1
    assert found.frames_many(outside) == dict.fromkeys(outside, ())
    assert found.frames_many([]) == {}


@pytest.mark.parametrize("minor", versions())
def test_inlined_calls_are_expanded(minor: str) -> None:
    found = binary(minor)
    exercise = only(found, "main.exercise")
    lines = (FRAMES / "main.go").read_text().splitlines()
    at = {name: number for number, text in enumerate(lines, 1) for name in LINES if name in text}
    stacks = {
        tuple((frame.function, frame.line) for frame in frames)
        for frames in found.frames_many(range(exercise.entry, exercise.end)).values()
    }
    assert (
        ("main.level3", at["return values[len"]),
        ("main.level2", at["func level2"]),
        ("main.level1", at["func level1"]),
        ("main.exercise", at["if level1(values)"]),
    ) in stacks
    frames = found.frames(exercise.entry)
    assert len(frames) == 1
    assert frames[0].file.endswith("/frames/main.go")
    assert frames[0].pc == exercise.entry
    assert frames[0].start_line == (
        0 if minor in ("1.17", "1.18", "1.19") else at["func exercise()"]
    )


LINES: Final = (
    *("return values[len", "func level2", "func level1"),
    *("if level1(values)", "func exercise()"),
)


def test_names_of_generic_functions() -> None:
    names = {function.name for function in binary().functions()}
    assert {"main.total[go.shape.int]", "main.total[go.shape.float64]"} <= names


@pytest.mark.full
def test_instances_of_old_generic_functions_share_a_name() -> None:
    # Up to Go 1.20 the table has no type arguments, and the instances share a name.
    instances = binary("1.19").functions_named("main.total[...]")
    assert len({function.entry for function in instances}) == 2


@pytest.mark.parametrize("minor", versions(*GENERIC))  # Go 1.17 has wrappers of the same names
def test_functions_have_the_role_of_their_id(minor: str) -> None:
    found = binary(minor)
    roles = {
        "runtime.goexit": FuncRole.GOEXIT,
        "runtime.gopanic": FuncRole.GOPANIC,
        "runtime.sigpanic": FuncRole.SIGPANIC,
        "runtime.mcall": FuncRole.MCALL,
        "runtime.morestack": FuncRole.MORESTACK,
        "runtime.systemstack": FuncRole.SYSTEMSTACK,
        "runtime.main": FuncRole.RUNTIME_MAIN,
        "runtime.mstart": FuncRole.MSTART,
        "main.main": FuncRole.NORMAL,
    }
    entries = {name: only(found, name).entry for name in roles}
    frames = found.frames_many(entries.values())
    assert {name: frames[entry][-1].role for name, entry in entries.items()} == roles
    wrappers = [f for f in found.functions() if found.layout.role(f.func_id) is FuncRole.WRAPPER]
    assert wrappers
    assert all(found.frames(f.entry)[-1].role is FuncRole.WRAPPER for f in wrappers[:10])


@pytest.mark.parametrize("minor", versions())
def test_the_stack_delta_is_zero_at_every_return(minor: str) -> None:
    found = binary(minor)
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    depths: dict[int, int] = {}
    for function in list(found.functions())[::5]:
        if function.flags & SPWRITE:
            continue
        assert found.sp_delta(function.entry) in (0, -1)
        code = found.elf.read(function.entry, function.end - function.entry)
        for address, _, mnemonic, _ in decoder.disasm_lite(code, function.entry):
            if mnemonic == "ret":
                depth = found.sp_delta(address)
                depths[depth] = depths.get(depth, 0) + 1
            elif mnemonic == "push" and address == function.entry:
                assert found.sp_delta(address + 1) == 8
    assert set(depths) == {0}
    assert depths[0] > 200


@pytest.mark.parametrize(
    ("minor", "mode"), builds(*product(("1.19", "1.25", NEWEST), ("plain", "pie")))
)
def test_call_sites_equal_those_of_a_decoder(minor: str, mode: str) -> None:
    found = binary(minor, mode)
    targets = [only(found, name) for name in ("runtime.gopark", "runtime.newobject")]
    called: dict[int, list[int]] = {target.entry: [] for target in targets}
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    for function in found.functions():
        code = found.elf.read(function.entry, function.end - function.entry)
        for address, size, mnemonic, operand in decoder.disasm_lite(code, function.entry):
            if mnemonic == "call" and size == 5 and int(operand, 16) in called:
                called[int(operand, 16)].append(address)
    for target in targets:
        sites = found.call_sites(target)[target.entry]
        assert list(sites) == called[target.entry]
        assert len(sites) > 5


def test_bytes_inside_an_instruction_are_not_a_call() -> None:
    """`mov rax, imm64` with the bytes of a call in its immediate."""
    found = binary()
    park = only(found, "runtime.gopark")
    site = found.call_sites(park)[park.entry][0]
    caller = found.function_at(site)
    assert caller is not None
    inside = caller.entry + 2
    call = b"\xe8" + struct.pack("<i", park.entry - inside - 5)
    code = b"\x48\xb8" + call + bytes(3)
    offset = found.elf.vaddr_to_offset(caller.entry)
    data = program()
    changed = GoBinary.open(ElfFile.from_bytes(data[:offset] + code + data[offset + len(code) :]))
    assert inside not in changed.call_sites(park)[park.entry]
