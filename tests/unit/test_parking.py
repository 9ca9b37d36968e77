"""The places that are probed, in programs of every Go version and build mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from symbolizer import ElfFile, GoBinary, GoTableError
from symbolizer.disasm import decode, is_emulated
from symbolizer.parking import probe_sites
from tests.builds import BUILDS
from tests.toolchains import toolchain

BLOCKOPS = Path(__file__).parent.parent / "targets" / "blockops"
OPERATIONS = {"chansend", "chanrecv", "selectgo", "semacquire1", "runtime_notifyListWait"}


@pytest.fixture(params=BUILDS, ids=lambda build: "-".join(build))
def binary(request: pytest.FixtureRequest) -> GoBinary:
    version, mode = request.param
    return GoBinary.open(ElfFile.open(toolchain(version).build(BLOCKOPS, mode)))


def test_every_hooked_operation_is_probed(binary: GoBinary) -> None:
    operations = {site.operation.split(".")[-1] for site in probe_sites(binary).parks}
    assert operations == OPERATIONS


def test_probes_stand_on_emulated_instructions_that_are_no_entry(binary: GoBinary) -> None:
    sites = probe_sites(binary)
    for pc in [site.start_pc for site in sites.parks] + [sites.wake_pc]:
        function = binary.function_at(pc)
        assert function is not None
        instructions = decode(
            binary.elf.read(function.entry, function.end - function.entry), function.entry
        )
        (probed,) = [each for each in instructions if each.address == pc]
        assert probed.emulated
        assert pc != function.entry


def test_a_wait_is_timed_before_it_parks(binary: GoBinary) -> None:
    for site in probe_sites(binary).parks:
        function = binary.function_at(site.start_pc)
        assert function is not None
        assert function.entry < site.start_pc < site.return_pc < function.end
        if site.operation == "runtime.semacquire1":
            assert site.start_pc < site.return_pc - 5
        else:
            assert site.start_pc == site.return_pc - 5


def test_nil_channels_are_not_probed(binary: GoBinary) -> None:
    """They park in the same functions, at another call."""
    probed = {site.return_pc - 5 for site in probe_sites(binary).parks}
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
def test_what_the_kernel_emulates(code: str, expected: bool) -> None:
    assert is_emulated(bytes.fromhex(code)) is expected


def test_code_that_is_no_code_is_refused() -> None:
    with pytest.raises(GoTableError, match="claims"):
        decode(bytes(2 << 20), 0x1000)
