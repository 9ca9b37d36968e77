"""Unwinding rules from pclntab, in programs of every Go version and build mode."""

from __future__ import annotations

import pytest

from symbolizer import ElfFile, FuncRole, GoBinary, GoTableError
from symbolizer.gobinary import Function
from symbolizer.gounwind import GoUnwind
from symbolizer.tls import g_offset
from symbolizer.unwind import RuleKind, UnwindRule
from tests.toolchains import BUILDS, toolchain
from tests.unit.test_parking import BLOCKOPS


@pytest.fixture(params=BUILDS, ids=lambda build: "-".join(build), scope="module")
def binary(request: pytest.FixtureRequest) -> GoBinary:
    version, mode = request.param
    return GoBinary.open(ElfFile.open(toolchain(version).build(BLOCKOPS, mode)))


def rules(binary: GoBinary, name: str) -> dict[int, UnwindRule]:
    """The rule of each byte of the function."""
    (function,) = in_text(binary, name)
    return {
        pc: each.rule
        for each in GoUnwind(binary).ranges(function.entry)
        for pc in range(each.start, each.end)
    }


def in_text(binary: GoBinary, name: str) -> tuple[Function, ...]:
    """Those of that name, without what the compiler made up to call assembly by it."""
    return tuple(
        function
        for function in binary.functions_named(name)
        if binary.layout.role(function.func_id) is not FuncRole.WRAPPER
    )


def test_rules_say_what_the_stack_deltas_say(binary: GoBinary) -> None:
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


def test_systemstack_is_unwound_on_the_other_stack(binary: GoBinary) -> None:
    kinds = {rule.kind for rule in rules(binary, "runtime.systemstack").values()}
    assert RuleKind.SYSTEM_STACK in kinds
    assert kinds <= {RuleKind.SYSTEM_STACK, RuleKind.NONE}


def test_who_was_preempted_is_no_caller(binary: GoBinary) -> None:
    known = [r for r in rules(binary, "runtime.asyncPreempt").values() if r.kind is RuleKind.SP]
    assert known
    assert all(rule.exact_caller for rule in known)
    assert not any(rule.exact_caller for rule in rules(binary, "runtime.gopark").values())


@pytest.mark.parametrize("version", [version for version, mode in BUILDS if mode == "cgo"])
def test_callbacks_return_to_what_the_version_saves(version: str) -> None:
    program = GoBinary.open(ElfFile.open(toolchain(version).build(BLOCKOPS, "cgo")))
    found = rules(program, "runtime.cgocallback").values()
    known = [rule for rule in found if rule.kind is RuleKind.SP]
    assert {rule.exact_caller for rule in known} == {version == "1.19"}


def test_a_signals_return_leads_to_who_was_interrupted(binary: GoBinary) -> None:
    names = ("runtime.sigreturn", "runtime.sigreturn__sigaction")
    (name,) = [name for name in names if in_text(binary, name)]
    assert {rule.kind for rule in rules(binary, name).values()} == {RuleKind.SIGNAL}
    known = [r for r in rules(binary, "runtime.sigtramp").values() if r.kind is RuleKind.SP]
    assert known
    assert all(rule.exact_caller for rule in known)


def test_nothing_is_known_outside_of_gos_text(binary: GoBinary) -> None:
    assert GoUnwind(binary).ranges(binary.text_start - 1) == ()
    assert GoUnwind(binary).ranges(binary.text_end) == ()


def test_the_running_g_is_where_the_linker_put_it(binary: GoBinary) -> None:
    # Go's own linker always takes the last word before the FS base; what others take is tested
    # with a running program, since stripped ones don't tell.
    assert g_offset(binary) == -8


def test_an_unknown_way_to_load_g_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    program = GoBinary.open(ElfFile.open(toolchain("1.27").build(BLOCKOPS, "plain")))
    monkeypatch.setattr("symbolizer.tls._READERS", ("runtime.memmove",))
    with pytest.raises(GoTableError, match="the running goroutine can't be found"):
        g_offset(program)
