"""Probe addresses of the runtime's own locks, in every Go version and build mode."""

from __future__ import annotations

import pytest

from symbolizer import ElfFile, GoBinary, GoTableError, UnsupportedGoVersion
from symbolizer.codeanalysis.runtime_locks import RuntimeLockSites, runtime_lock_sites
from symbolizer.x86.disasm import Instruction, decode
from tests.builds import BUILDS, in_full, pairs
from tests.toolchains import MINORS
from tests.unit.symbolizer import go_programs

WITH_LISTS = ("1.25", "1.26", "1.27")


@pytest.fixture(params=pairs(*(build for build in BUILDS if build[0] in WITH_LISTS)))
def binary(request: pytest.FixtureRequest) -> GoBinary:
    return go_programs.binary(*request.param)


def probed(sites: RuntimeLockSites) -> list[int]:
    return [sites.sleep_pc, sites.wake_pc, *(each.call_pc for each in sites.unlocks)]


def instructions_around(binary: GoBinary, pc: int) -> list[Instruction]:
    """The instructions from `pc` on, which is not the entry of its function."""
    function = binary.function_at(pc)
    assert function is not None
    assert pc != function.entry
    return list(decode(binary.elf.read(pc, function.end - pc), pc))


def test_probes_are_on_emulated_instructions_and_not_on_entries(binary: GoBinary) -> None:
    for pc in probed(runtime_lock_sites(binary)):
        assert instructions_around(binary, pc)[0].emulated


def test_each_probe_is_in_its_function(binary: GoBinary) -> None:
    sites = runtime_lock_sites(binary)
    assert binary.frames(sites.sleep_pc)[0].function == "runtime.lock2"
    assert {binary.frames(each.call_pc)[0].function for each in sites.unlocks} == {
        "runtime.unlock2"
    }
    for pc, name in (
        (sites.system_stack_pc, "runtime.systemstack"),
        (sites.more_stack_pc, "runtime.morestack"),
        (sites.thread_start_pc, "runtime.mstart"),
    ):
        assert binary.frames(pc - 1)[0].function == name


def test_the_register_holds_the_woken_thread_until_the_wake(binary: GoBinary) -> None:
    sites = runtime_lock_sites(binary)
    offset = binary.layout.offset("m", "mOS.waitsema")
    around = instructions_around(binary, sites.wake_pc)
    if around[0].is_call:
        (called,) = binary.functions_named("runtime.semawakeup")
        assert (around[0].target, sites.wake_register) == (called.entry, "rax")
        return
    for each in around:
        if each.adds_to == (sites.wake_register, offset):
            return
        assert sites.wake_register not in each.written
        assert each.falls_through
    pytest.fail("the thread's semaphore is never raised")


@pytest.mark.parametrize("version", in_full(*(m for m in MINORS if m not in WITH_LISTS)))
def test_older_versions_are_refused(version: str) -> None:
    with pytest.raises(UnsupportedGoVersion, match=r"no record.*Go 1\.25 and newer"):
        runtime_lock_sites(go_programs.binary(version))


@pytest.mark.parametrize("name", ["semasleep", "unlock2Wake", "semawakeup", "newstack", "mstart0"])
def test_unknown_code_is_refused(name: str) -> None:
    """As if all calls were inlined: no function has the name."""
    old = f"\0runtime.{name}\0".encode()
    data = go_programs.program("1.27")
    assert old in data
    changed = data.replace(old, old[:-2] + b"_\0")
    with pytest.raises(GoTableError, match="compiled in an unknown way"):
        runtime_lock_sites(GoBinary.open(ElfFile.from_bytes(changed)))
