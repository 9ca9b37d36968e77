"""Unwinding rules from pclntab, in programs of every Go version and build mode."""

from __future__ import annotations

import capstone
import pytest

from symbolizer import FuncRole, GoBinary, GoTableError
from symbolizer.codeanalysis.tls import g_offset
from symbolizer.go.binary import Function
from symbolizer.unwind.go import GoUnwind
from symbolizer.unwind.rules import RuleKind, UnwindRule
from symbolizer.x86.disasm import decode, successors
from tests.builds import BUILDS, pairs, versions
from tests.programs import saved


@pytest.fixture(params=pairs(), scope="module")
def binary(request: pytest.FixtureRequest) -> GoBinary:
    return saved.binary("blockops", *request.param)


def rules(binary: GoBinary, name: str) -> dict[int, UnwindRule]:
    """The rule of each byte of the function."""
    (function,) = in_text(binary, name)
    return {
        pc: each.rule
        for each in GoUnwind(binary).ranges(function.entry)
        for pc in range(each.start, each.end)
    }


def in_text(binary: GoBinary, name: str) -> tuple[Function, ...]:
    """The functions of that name, without the compiler's wrapper of assembly."""
    return tuple(
        function
        for function in binary.functions_named(name)
        if binary.layout.role(function.func_id) is not FuncRole.WRAPPER
    )


def test_rules_match_the_stack_deltas(binary: GoBinary) -> None:
    for name in ("runtime.gopark", "runtime.chansend", "fmt.Fprintln", "runtime.memmove"):
        (function,) = in_text(binary, name)
        found = rules(binary, name)
        assert sorted(found) == list(range(function.entry, function.end))
        for pc, rule in found.items():
            delta = binary.sp_delta(pc)
            if delta < 0:
                assert rule == UnwindRule(RuleKind.NONE)
            else:
                saved = -16 if delta else None
                assert rule == UnwindRule(RuleKind.SP, delta + 8, saved)
    assert {rule.cfa_offset for rule in rules(binary, "runtime.memmove").values()} <= {0, 8}
    assert len({rule.cfa_offset for rule in rules(binary, "runtime.chansend").values()}) > 1


def test_a_child_on_the_same_stack_leaves_the_return_address_in_r12(binary: GoBinary) -> None:
    """Programs without os/exec don't have it."""
    for function in in_text(binary, "syscall.rawVforkSyscall"):
        found = rules(binary, function.name)
        calls = [
            pc
            for pc in range(function.entry, function.end - 1)
            if binary.elf.read(pc, 2) == b"\x0f\x05"
        ]
        assert calls
        for pc in (*calls, *(pc + 2 for pc in calls)):
            assert found[pc] == UnwindRule(RuleKind.IN_R12)
        assert found[function.entry] == UnwindRule(RuleKind.SP, 8)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("runtime.goexit", RuleKind.END),
        ("runtime.mstart", RuleKind.END),
        ("runtime.mcall", RuleKind.SWITCH),
        ("gogo", RuleKind.SWITCH),
        ("runtime.asmcgocall", RuleKind.SWITCH),
        ("runtime.nanotime1", RuleKind.SWITCH),
        ("runtime.morestack", RuleKind.MORE_STACK),
    ],
)
def test_a_function_that_switches_stacks_has_one_rule(
    binary: GoBinary, name: str, kind: RuleKind
) -> None:
    assert {rule.kind for rule in rules(binary, name).values()} == {kind}


def test_systemstack_leads_to_its_caller_from_each_instruction(binary: GoBinary) -> None:
    """Also without a switch of stacks, and on the thread's own stack, where it never switches."""
    (function,) = in_text(binary, "runtime.systemstack")
    found = rules(binary, function.name)
    places = stack_places(binary, function)
    assert {kind for kind, _ in places.values()} == {RuleKind.SP, RuleKind.SYSTEM_STACK}
    assert {
        pc: (rule.kind, rule.cfa_offset, rule.bp_offset)
        for pc, rule in found.items()
        if pc in places
    } == {pc: (kind, pushed + 8, -16 if pushed else None) for pc, (kind, pushed) in places.items()}
    others = {rule.kind for pc, rule in found.items() if pc not in places}
    assert others <= {RuleKind.SP, RuleKind.SYSTEM_STACK, RuleKind.NONE}


def stack_places(binary: GoBinary, function: Function) -> dict[int, tuple[RuleKind, int]]:
    """Where the caller's frame is at each instruction of systemstack, by those before it.

    On which stack, and how many bytes were pushed there behind the return address. Its end in a
    crash (badsystemstack), which loads an address, is left out.
    """
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    code = binary.elf.read(function.entry, function.end - function.entry)
    instructions = {each.address: each for each in decoder.disasm(code, function.entry)}
    flow = successors(decode(code, function.entry))
    found: dict[int, tuple[RuleKind, int]] = {}
    pending = [(function.entry, RuleKind.SP, 0)]
    while pending:
        pc, kind, pushed = pending.pop()
        each = instructions[pc]
        if each.mnemonic == "lea":
            continue
        assert found.setdefault(pc, (kind, pushed)) == (kind, pushed)
        if each.mnemonic in ("push", "pop"):
            pushed += 8 if each.mnemonic == "push" else -8
        elif each.mnemonic == "mov" and each.op_str.startswith("rsp,"):
            kind = RuleKind.SYSTEM_STACK if kind is RuleKind.SP else RuleKind.SP
        pending += [(to, kind, pushed) for to in flow[pc] if to not in found]
    assert {instructions[pc].mnemonic for pc in found if not flow[pc]} == {"ret", "jmp"}
    return found


def test_a_preempted_function_keeps_its_exact_pc(binary: GoBinary) -> None:
    known = [r for r in rules(binary, "runtime.asyncPreempt").values() if r.kind is RuleKind.SP]
    assert known
    assert all(rule.exact_caller for rule in known)
    assert not any(rule.exact_caller for rule in rules(binary, "runtime.gopark").values())


@pytest.mark.machine
@pytest.mark.parametrize(
    "version", versions(*(version for version, mode in BUILDS if mode == "cgo"))
)
def test_callbacks_return_to_the_entry_of_a_function_in_old_versions(version: str) -> None:
    program = saved.binary("blockops", version, "cgo")
    found = rules(program, "runtime.cgocallback").values()
    known = [rule for rule in found if rule.kind is RuleKind.SP]
    assert {rule.exact_caller for rule in known} == {version in ("1.17", "1.18", "1.19", "1.20")}


def test_the_return_from_a_signal_leads_to_the_interrupted_code(binary: GoBinary) -> None:
    names = ("runtime.sigreturn", "runtime.sigreturn__sigaction")
    (name,) = [name for name in names if in_text(binary, name)]
    assert {rule.kind for rule in rules(binary, name).values()} == {RuleKind.SIGNAL}
    known = [r for r in rules(binary, "runtime.sigtramp").values() if r.kind is RuleKind.SP]
    assert known
    assert all(rule.exact_caller for rule in known)


def test_there_are_not_rules_outside_of_gos_text(binary: GoBinary) -> None:
    assert GoUnwind(binary).ranges(binary.text_start - 1) == ()
    assert GoUnwind(binary).ranges(binary.text_end) == ()


def test_the_offset_of_the_running_g_is_the_linkers(binary: GoBinary) -> None:
    # Go's own linker always uses the last word before the FS base. Other linkers are tested with a
    # running program, since a stripped one has no symbol to compare with.
    assert g_offset(binary) == -8


def test_an_unknown_way_to_load_g_is_an_error() -> None:
    with pytest.raises(GoTableError, match="the running goroutine cannot be found"):
        g_offset(saved.binary("blockops"), readers=("runtime.memmove",))
