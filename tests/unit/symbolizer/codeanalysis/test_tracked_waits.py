"""Places that one wait in eight passes, in every Go version and build mode."""

from __future__ import annotations

from pathlib import Path

import capstone
import pytest

from symbolizer import ElfFile, GoBinary
from symbolizer.codeanalysis import tracked_waits
from symbolizer.codeanalysis.tracked_waits import TrackedSite, TrackedWaitSites, tracked_wait_sites
from symbolizer.errors import GoTableError
from symbolizer.x86.disasm import Instruction, decode, reachable, successors
from symbolizer.x86.values import Source
from tests.builds import NEWEST, pairs, versions
from tests.toolchains import toolchain

pytestmark = pytest.mark.machine

TARGETS = Path(__file__).parents[3] / "targets"
SET_STATUS = "runtime.casgstatus"
# Which place the compiler keeps of a copy of casgstatus, by the function that it is inlined into:
# the statuses are constants there.
INLINED = {
    "runtime.ready": {"ends"},
    "runtime.park_m": {"begins", "locks", "ends"},  # a park that fails ends at once
    "runtime.execute": {"runs"},
}
BEFORE_LOCKS = ("1.17", "1.18", "1.19")
KINDS = ("begins", "locks", "ends", "runs")
LOCKS = {"SyncMutexLock", "SyncRWMutexRLock", "SyncRWMutexLock"}
IS_LOCK = "runtime.waitReason.isMutexWait"


@pytest.mark.parametrize("build", pairs())
def test_each_copy_of_the_code_has_its_places_once(build: tuple[str, str]) -> None:
    program = opened(*build)
    sites = tracked_wait_sites(program)
    absent = {"locks"} if build[0] in BEFORE_LOCKS else set()
    assert places(program, sites) == {
        name: (set(KINDS) if name == SET_STATUS else INLINED[name]) - absent
        for name in {SET_STATUS, *inlined_into(program)}
    }
    for kind in KINDS:
        functions = [function_of(program, site) for site in getattr(sites, kind)]
        assert len(set(functions)) == len(functions)


def test_a_program_with_more_places_than_there_is_room_for_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = opened(NEWEST, "plain")
    sites = tracked_wait_sites(program)
    count = len(every_place(sites))
    monkeypatch.setattr(tracked_waits, "MAX_PLACES", count - 1)
    with pytest.raises(GoTableError, match=f"more than {count - 1} places"):
        tracked_wait_sites(program)


@pytest.mark.parametrize("build", pairs())
def test_places_are_on_emulated_instructions(build: tuple[str, str]) -> None:
    program = opened(*build)
    sites = tracked_wait_sites(program)
    for site in every_place(sites):
        code = instructions(program, site)
        assert code[site.pc].emulated
        if build[1] != "debug" and site not in sites.runs:  # some of those are calls
            assert code[site.pc].is_cheap


@pytest.mark.parametrize("build", pairs())
def test_untracked_goroutines_pass_no_place(build: tuple[str, str]) -> None:
    """Without the jump on g.tracking and what follows, no place is reached."""
    program = opened(*build)
    sites = tracked_wait_sites(program)
    for site in every_place(sites):
        function = program.function_at(site.pc)
        assert function is not None
        code = instructions(program, site)
        flow = successors(code.values())
        tests = [pc for pc in code if compares_tracking(program, pc)]
        assert any(
            site.pc not in reachable(flow, [function.entry], without=code[pc].end) for pc in tests
        )


@pytest.mark.parametrize("build", pairs())
def test_newer_versions_note_when_waits_for_locks_began(build: tuple[str, str]) -> None:
    sites = tracked_wait_sites(opened(*build))
    is_old = build[0] in BEFORE_LOCKS
    assert sites.sudog_offset is not None
    assert sites.stamps_locks != is_old
    assert sites.begins_has_locks == (is_old or build[1] == "debug")
    assert bool(sites.locks) != is_old


@pytest.mark.parametrize("build", pairs())
def test_waits_for_locks_alone_pass_the_places_of_locks(build: tuple[str, str]) -> None:
    """Whatever g.waitreason is: all others pass the place where waits begin, in the same copy."""
    program = opened(*build)
    sites = tracked_wait_sites(program)
    if build[0] in BEFORE_LOCKS:
        assert sites.locks == ()
        return
    begins = {site.pc for site in sites.begins}
    for site in sites.locks:
        code = instructions(program, site)
        flow = successors(code.values())
        function = program.function_at(site.pc)
        assert function is not None
        locks = lock_reasons(program)
        passed = {
            load: [addresses_behind(program, code, load, reason) for reason in range(64)]
            for load in reads_of_reason(program, code)
        }
        (load,) = (load for load in passed if site.pc in passed[load][min(locks)])
        assert site.pc not in reachable(flow, [function.entry], without=load)
        for reason, addresses in enumerate(passed[load]):
            assert (site.pc in addresses) == (reason in locks)
            if reason not in locks:
                assert len(begins & {*addresses}) == 1
                assert site.pc not in reachable(flow, [addresses[-1]], without=load)
        if not sites.begins_has_locks:
            for name in ("SyncMutexLock", "SyncRWMutexRLock"):
                assert not begins & {*passed[load][program.layout.wait_reasons[name]]}


@pytest.mark.parametrize("build", pairs())
def test_at_places_of_locks_the_stack_has_the_goroutine(build: tuple[str, str]) -> None:
    """It is the first argument, in RAX, and is put there once."""
    program = opened(*build)
    for site in tracked_wait_sites(program).locks:
        source = site.goroutine
        assert source == Source("rsp", source.offset, reads=True)
        code = instructions(program, site)
        slot = f"qword ptr [rsp + {source.offset:#x}]"
        (store,) = (pc for pc in code if decoded(program, code[pc])[1].startswith(f"{slot},"))
        assert decoded(program, code[store]) == ("mov", f"{slot}, rax")
        assert not any("rax" in step.written for pc, step in code.items() if pc < store)
        assert program.sp_delta(site.pc) == program.sp_delta(store)


@pytest.mark.parametrize("minor", versions())
def test_libraries_and_race_detectors_have_the_places(minor: str) -> None:
    for mode, program in (("c-shared", "golibrary"), ("-race", "frames")):
        built = toolchain(minor).build(TARGETS / program, mode)
        sites = tracked_wait_sites(GoBinary.open(ElfFile.open(built)))
        assert len(every_place(sites)) == (3 if minor in BEFORE_LOCKS else len(KINDS))
        assert sites.begins
        assert sites.ends
        assert sites.runs


def opened(version: str, mode: str) -> GoBinary:
    return GoBinary.open(ElfFile.open(toolchain(version).build(TARGETS / "blockops", mode)))


def every_place(sites: TrackedWaitSites) -> list[TrackedSite]:
    return [site for kind in KINDS for site in getattr(sites, kind)]


def function_of(program: GoBinary, site: TrackedSite) -> str:
    function = program.function_at(site.pc)
    assert function is not None
    assert site.pc != function.entry
    return function.name


def places(program: GoBinary, sites: TrackedWaitSites) -> dict[str, set[str]]:
    kinds: dict[str, set[str]] = {}
    for kind in KINDS:
        for site in getattr(sites, kind):
            kinds.setdefault(function_of(program, site), set()).add(kind)
    return kinds


def inlined_into(program: GoBinary) -> set[str]:
    names = set()
    for name in INLINED:
        for function in program.functions_named(name):
            frames = program.frames_many(range(function.entry, function.end, 3))
            if any(any(f.function == SET_STATUS for f in found) for found in frames.values()):
                names.add(name)
    return names


def instructions(program: GoBinary, site: TrackedSite) -> dict[int, Instruction]:
    function = program.function_at(site.pc)
    assert function is not None
    code = program.elf.read(function.entry, function.end - function.entry)
    return {step.address: step for step in decode(code, function.entry)}


def compares_tracking(program: GoBinary, pc: int) -> bool:
    """Whether it jumps behind `cmp byte [register + offset of tracking], 0`."""
    offset = program.layout.offset("g", "tracking")
    before = program.elf.read(pc - 16, 16)
    compared = offset.to_bytes(4, "little") + b"\x00"
    return program.elf.read(pc, 1)[0] in (0x74, 0x0F) and compared in before


def decoded(program: GoBinary, step: Instruction) -> tuple[str, str]:
    """The name of an instruction and its operands."""
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    (found,) = decoder.disasm(program.elf.read(step.address, step.size), step.address)
    return found.mnemonic, found.op_str


def lock_reasons(program: GoBinary) -> set[int]:
    return {program.layout.wait_reasons[name] for name in LOCKS}


def reads_of_reason(program: GoBinary, code: dict[int, Instruction]) -> list[int]:
    """The instructions that read g.waitreason."""
    offset = program.layout.offset("g", "waitreason")
    ends = f" + {offset:#x}]"
    return [
        pc
        for pc, step in code.items()
        for name, operands in [decoded(program, step)]
        if name == "movzx" and "byte ptr [" in operands and operands.endswith(ends)
        if "[rsp" not in operands
    ]


def addresses_behind(
    program: GoBinary, code: dict[int, Instruction], load: int, reason: int
) -> list[int]:
    """The addresses that are passed behind a read of g.waitreason until it no longer matters.

    That is, until an instruction that does not depend on it alone.
    """
    values: dict[str, int] = {}
    compared = (0, 0)
    pc, passed = load, list[int]()
    while True:
        step = code[pc]
        name, operands = decoded(program, step)
        if pc != load:
            passed.append(pc)
        left, _, right = operands.partition(", ")
        value = values.get(family(right), int(right, 0) if right[:1].isdigit() else None)
        if pc == load:
            values = {family(left): reason}
        elif name == "mov" and family(right) in values:
            values[family(left)] = values[family(right)]
        elif name == "or" and family(left) in values and value is not None:
            values[family(left)] |= value
        elif name in ("cmp", "test") and family(left) in values and value is not None:
            compared = (values[family(left)], value if name == "cmp" else 0)
        elif name in ("je", "jne"):
            if (compared[0] == compared[1]) == (name == "je"):
                assert step.target is not None
                pc = step.target
                continue
        elif step.is_call and step.target is not None and is_named(program, step.target, IS_LOCK):
            values = {"a": int(reason in lock_reasons(program))}
        elif name != "nop":
            return passed
        pc = step.end


def family(register: str) -> str:
    """What RCX, ECX and CL have in common."""
    name = register.removeprefix("r").removeprefix("e")
    return name[0] if name[:1] in "abcd" and name[1:] in ("x", "l") else name.rstrip("lbdw")


def is_named(program: GoBinary, entry: int, name: str) -> bool:
    return any(function.entry == entry for function in program.functions_named(name))
