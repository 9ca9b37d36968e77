"""The names of the running kernel's functions, seen and hidden."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from ebpfprof.kernel import kallsyms, program_source
from ebpfprof.kernel.kallsyms import KernelSymbol, KernelSymbols
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.program_source import ProgramSource
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from tests.builds import in_full
from tests.kernel.programs import program
from tests.targets_run import Target

ROOT = Path(__file__).parents[2]
RESTRICT = Path("/proc/sys/kernel/kptr_restrict")
TELL = """
from ebpfprof.kernel.kallsyms import KernelSymbols
symbols = KernelSymbols.read()
print(symbols.hidden, symbols.at(0xFFFFFFFF81000000), symbols.hidden_text)
"""
HIDDEN = "Functions of the kernel have no names: the kernel hides their addresses"


@contextmanager
def restricted(value: int) -> Iterator[None]:
    """Set kernel.kptr_restrict."""
    before = RESTRICT.read_text()
    RESTRICT.write_text(str(value))
    try:
        yield
    finally:
        RESTRICT.write_text(before)


def message(*prefix: str) -> str:
    """What another process finds that `prefix` starts."""
    command = [*prefix, sys.executable, "-c", TELL]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.alone
def test_every_function_is_found_by_its_addresses() -> None:
    with restricted(1):
        lines = Path("/proc/kallsyms").read_text().splitlines()
        symbols = KernelSymbols.read()
    assert not symbols.hidden
    at: dict[int, set[tuple[str, str]]] = defaultdict(set)
    for line in lines:
        digits, kind, name, *module = line.split()
        if kind in "tTwW":
            at[int(digits, 16)].add((name, module[0].strip("[]") if module else ""))
    starts = sorted(at)
    assert len(starts) > 10_000
    for start, following in list(pairwise(starts))[::37]:
        for address in (start, start + min(following - start, 1 << 16) - 1):
            symbol = symbols.at(address)
            assert symbol is not None
            assert symbol.start == start
            assert (symbol.name, symbol.module) in at[start]


def test_known_functions_have_their_names() -> None:
    lines = Path("/proc/kallsyms").read_text().splitlines()
    addresses = {line.split()[2]: int(line.split()[0], 16) for line in lines}
    symbols = KernelSymbols.read()
    for name in ("do_syscall_64", "schedule", "ksys_read", "do_sys_openat2"):
        assert symbols.at(addresses[name] + 1) == KernelSymbol(name, "", addresses[name])


def test_bpf_programs_are_functions_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "int ends_at_once(struct pt_regs *ctx) { return 0; }"
    monkeypatch.setattr(program_source, "program_text", lambda name: text)
    with BpfProgram(ProgramSource("test.bpf.c", {}, ("ends_at_once",))) as loaded:
        loaded.load()
        lines = Path("/proc/kallsyms").read_text().splitlines()
        symbols = KernelSymbols.read()
    (line,) = [each for each in lines if "_ends_at_once" in each]
    address, _, name, module = line.split()
    assert module == "[bpf]"
    assert symbols.at(int(address, 16)) == KernelSymbol(name, "bpf", int(address, 16))


@pytest.mark.alone
def test_kptr_restrict_2_hides_kernel_names() -> None:
    way_out = "(kernel.kptr_restrict is 2). Type:\n    sudo sysctl kernel.kptr_restrict=1"
    with restricted(2):
        assert message() == f"True None {HIDDEN} {way_out}"


@pytest.mark.alone
def test_without_cap_syslog_kernel_names_are_hidden() -> None:
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    with restricted(1):
        without = message(setpriv, "--bounding-set=-syslog", "--inh-caps=-syslog")
        assert without.startswith(f"True None {HIDDEN} (CAP_SYSLOG is missing). This root is ")
        assert message().startswith("False KernelSymbol(")


@pytest.mark.parametrize("shared_s", [60.0, *in_full(0.0)])
def test_all_targets_share_a_table_of_kernel_symbols(
    shared_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table takes 8 MB: one for each of 64 processes of a server would be half a gigabyte."""
    monkeypatch.setattr(kallsyms, "SHARED_S", shared_s)
    with (
        LiveSession(Options(kinds=("block", "cpu"), hz=999), capacity=2) as live,
        Target.start(program("pingpong")) as one,
        Target.start(program("pingpong")) as other,
    ):
        targets = [live.add(each.pid) for each in (one, other)]
        for target, each in zip(targets, (one, other), strict=True):
            start = live.start(target)
            in_kernel = False
            while not in_kernel:
                each.ask("go", "ns ")
                sums = live.sums(target, ("cpu",))
                (profile,) = live.report(sums, start).profiles
                in_kernel = any(
                    mapping.filename == "[kernel.kallsyms]" for mapping in profile.mappings
                )
        gc.collect()
        # Not isinstance(): a proxy of what another test has left asks that, which is gone.
        assert sum(type(value) is KernelSymbols for value in gc.get_objects()) == 1
