"""Where traces have their probes, in every Go version and build mode."""

from __future__ import annotations

import pytest

from symbolizer import GoBinary
from symbolizer.codeanalysis.entry_sites import at_entry, behind_check
from symbolizer.codeanalysis.schedule_sites import ScheduleMoment, ScheduleSite, schedule_sites
from symbolizer.x86.disasm import decode
from tests.builds import pairs, versions
from tests.unit.symbolizer.go_programs import binary

ALWAYS = set(ScheduleMoment) - {
    ScheduleMoment.SWITCH,  # where a program links iter.Pull
    ScheduleMoment.NET_READY,
    ScheduleMoment.PREEMPT,
    ScheduleMoment.YIELD,
}
DEAR = {  # some times a second at most
    ScheduleMoment.ASSIST_END,
    ScheduleMoment.GC_BEGIN,
    ScheduleMoment.GC_END,
}


@pytest.mark.parametrize("build", pairs())
def test_each_moment_has_a_cheap_place(build: tuple[str, str]) -> None:
    found = binary(*build)
    sites = schedule_sites(found)
    assert sites.missing == ()
    assert {site.moment for site in sites.sites} >= ALWAYS
    assert sites.of(ScheduleMoment.YIELD)
    for site in sites.sites:
        if site.moment not in DEAR:
            assert is_emulated(found, site), site


def is_emulated(binary: GoBinary, site: ScheduleSite) -> bool:
    function = binary.function_at(site.pc)
    assert function is not None
    code = decode(binary.elf.read(function.entry, function.end - function.entry), function.entry)
    return next(each.emulated for each in code if each.address == site.pc)


@pytest.mark.parametrize("minor", versions("1.19", "1.21", "1.22", "1.27"))
def test_newer_versions_say_whether_a_goroutine_was_made_to_yield(minor: str) -> None:
    assert schedule_sites(binary(minor)).tells_preemption == (minor not in ("1.19", "1.21"))


# cmp rsp, [r14+16]; jbe +5; push rbp; mov rax, rbx; ret
CHECKED = bytes.fromhex("493b6610 7605 55 4889d8 c3")


def test_the_jump_of_the_stack_check_will_do_where_stacks_never_grow() -> None:
    assert at_entry(decode(CHECKED, 0), ("rax",)) == 4
    assert behind_check(decode(CHECKED, 0)) == 6


def test_arguments_must_still_be_there() -> None:
    changed = bytes.fromhex("4889d8 90 c3")  # mov rax, rbx; nop; ret
    assert at_entry(decode(changed, 0), ("rax",)) is None
    assert at_entry(decode(changed, 0), ("rbx",)) == 3
