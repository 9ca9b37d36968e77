"""Probe addresses, in programs of every Go version and build mode."""

from __future__ import annotations

import pytest

from ebpfprof.goruntime import limits
from symbolizer import GoBinary, GoTableError
from symbolizer.codeanalysis.park_sites import probe_sites
from symbolizer.codeanalysis.semaphores import MAX_LOCK_CALLERS
from symbolizer.x86.disasm import Instruction, decode, is_emulated, reachable, successors
from tests.builds import pairs, versions
from tests.programs import saved

OPERATIONS = {"chansend", "chanrecv", "selectgo", "semacquire1", "runtime_notifyListWait"}


@pytest.fixture(params=pairs())
def binary(request: pytest.FixtureRequest) -> GoBinary:
    return saved.binary("blockops", *request.param)


def test_every_hooked_operation_is_probed(binary: GoBinary) -> None:
    operations = {site.operation.split(".")[-1] for site in probe_sites(binary).parks}
    assert operations == OPERATIONS


def test_probes_are_on_emulated_instructions_and_not_on_entries(binary: GoBinary) -> None:
    sites = probe_sites(binary)
    assert sites.semaphores is not None
    starts = [park.start_pc for park in sites.parks]
    releases = [release.call_pc for release in sites.semaphores.releases]
    for pc in [*starts, *releases, sites.wake_pc, sites.semaphores.settled_pc]:
        probed = instructions_around(binary, pc)[pc]
        assert probed.emulated


def test_lock_callers_are_functions_that_only_locks_call(binary: GoBinary) -> None:
    semaphores = probe_sites(binary).semaphores
    assert semaphores is not None
    callers = {binary.frames(pc - 1)[-1].function for pc in semaphores.lock_callers}
    assert {name.rpartition(".")[2] for name in callers} == (
        {"runtime_SemacquireMutex"}
        if binary.version.minor <= 19
        else {
            "runtime_SemacquireMutex",
            "runtime_SemacquireRWMutex",
            "runtime_SemacquireRWMutexR",
        }
    )
    assert len(semaphores.lock_callers) == len(callers)


def test_the_bpf_program_has_room_for_all_callers() -> None:
    assert limits.MAX_LOCK_CALLERS >= MAX_LOCK_CALLERS


def test_a_wait_is_timed_once_before_it_parks(binary: GoBinary) -> None:
    for site in probe_sites(binary).parks:
        function = binary.function_at(site.start_pc)
        assert function is not None
        assert function.entry < site.start_pc <= site.call_pc < function.end
        flow = successors(instructions_around(binary, site.start_pc).values())
        assert site.call_pc not in reachable(flow, [function.entry], without=site.start_pc)
        if not site.is_semaphore and site.start_pc != site.call_pc:
            between = reachable(flow, [site.start_pc], without=site.call_pc) - {site.start_pc}
            assert all(site.start_pc < pc < site.call_pc for pc in between)


def test_probes_of_the_newest_go_write_no_stack() -> None:
    binary = saved.binary("blockops")
    sites = probe_sites(binary)
    for pc in [sites.wake_pc, *(site.start_pc for site in sites.parks)]:
        assert instructions_around(binary, pc)[pc].is_cheap


def test_each_wake_passes_the_probe(binary: GoBinary) -> None:
    wake_pc = probe_sites(binary).wake_pc
    function = binary.function_at(wake_pc)
    assert function is not None
    code = instructions_around(binary, wake_pc)
    flow = successors(code.values())
    around = reachable(flow, [function.entry], without=wake_pc)
    assert not any(code[pc].target is None and not code[pc].falls_through for pc in around)


def test_every_call_that_waits_for_a_semaphore_parks_or_settles(binary: GoBinary) -> None:
    sites = probe_sites(binary)
    assert sites.semaphores is not None
    (park,) = [park for park in sites.parks if park.is_semaphore]
    settled_pc = sites.semaphores.settled_pc
    flow = successors(instructions_around(binary, settled_pc).values())
    returns = {pc for pc in flow if not flow[pc]}
    to_park = {pc: () if pc == park.call_pc else flow[pc] for pc in flow}
    assert not returns & reachable(to_park, [park.start_pc], without=settled_pc) - {park.call_pc}
    assert settled_pc in reachable(to_park, [park.start_pc])


def instructions_around(binary: GoBinary, pc: int) -> dict[int, Instruction]:
    """The instructions of the function around `pc`, which is not its entry."""
    function = binary.function_at(pc)
    assert function is not None
    assert pc != function.entry
    code = binary.elf.read(function.entry, function.end - function.entry)
    return {each.address: each for each in decode(code, function.entry)}


def test_nil_channels_are_not_probed(binary: GoBinary) -> None:
    """They park in the same functions, at another call."""
    probed = {site.call_pc for site in probe_sites(binary).parks}
    parking = (*binary.functions_named("runtime.gopark"), *binary.functions_named("runtime.mcall"))
    calls = {
        pc
        for pcs in binary.call_sites(*parking).values()
        for pc in pcs
        if any(frame.function == "runtime.chanrecv" for frame in binary.frames(pc))
    }
    assert len(calls) == 2 * len(calls & probed) > 0


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("55", True),  # push rbp
        ("4154", True),  # push r12
        ("90", True),  # nop
        ("e800000000", True),  # call rel32
        ("e900000000", True),  # jmp rel32
        ("eb00", True),  # jmp rel8
        ("7600", True),  # jbe rel8
        ("0f8600000000", True),  # jbe rel32
        ("493b6610", False),  # cmp rsp, [r14+0x10]
        ("6690", False),  # xchg ax, ax: a prefix
        ("0f1f440000", False),  # a long nop: emulated by new kernels only
        ("ffd0", False),  # call rax
        ("4883ec18", False),  # sub rsp, 0x18
    ],
)
def test_instructions_that_the_kernel_emulates(code: str, expected: bool) -> None:
    assert is_emulated(bytes.fromhex(code)) is expected


def test_a_function_with_too_much_code_is_refused() -> None:
    with pytest.raises(GoTableError, match="claims"):
        decode(bytes(2 << 20), 0x1000)


@pytest.mark.machine
@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize(("target", "sets_labels"), [("blockops", False), ("labels", True)])
def test_programs_that_can_set_labels_are_recognized(
    version: str, target: str, sets_labels: bool
) -> None:
    assert probe_sites(saved.binary(target, version)).sets_labels is sets_labels
