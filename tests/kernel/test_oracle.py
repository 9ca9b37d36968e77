"""The oracle: Go's own profiler, switched on from outside, against the program's own profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from symbolizer import ElfFile, GoBinary
from tests import oracle
from tests.builds import VERSIONS, in_full, versions
from tests.foreign import Fzf
from tests.kernel.programs import TARGETS
from tests.oracle import Bucket
from tests.targets_run import Target
from tests.toolchains import toolchain

READABLE = VERSIONS[VERSIONS.index("1.19") :]
"""In the code of older ones the oracle does not find the profiler's variables."""


def leaves(program: Path, bias: int, buckets: list[Bucket]) -> dict[str, float]:
    """Counts by the innermost function, bias taken off the addresses."""
    counts: dict[str, float] = {}
    with ElfFile.open(program) as elf:
        binary = GoBinary.open(elf)
        for bucket in buckets:
            leaf = binary.frames(bucket.stack[0] - bias - 1)[0].function
            counts[leaf] = counts.get(leaf, 0) + bucket.count
    return counts


@pytest.mark.parametrize("minor", versions(*READABLE))
@pytest.mark.parametrize("mode", ["stripped", *in_full("plain", "pie")])
def test_a_program_without_pprof_is_profiled(minor: str, mode: str) -> None:
    program = toolchain(minor).build(TARGETS / "nopprof", mode)
    with Target.start(program) as target:
        oracle.set_block_rate(target.pid, program, 1)
        assert oracle.read_block_buckets(target.pid, program) == []
        target.ask("go", "done")
        buckets = oracle.read_block_buckets(target.pid, program)
        bias = oracle.load_bias(target.pid, program)
    counts = leaves(program, bias, buckets)
    assert counts["sync.(*WaitGroup).Wait"] == 1
    # Some 200 each; on a busy machine the other side may come first and no one has to wait.
    for leaf in ("runtime.chanrecv2", "sync.(*Cond).Wait", "sync.(*Mutex).Lock"):
        assert 20 < counts[leaf] <= 401, leaf
    assert all(bucket.delay_ns > 0 for bucket in buckets)


@pytest.mark.parametrize("minor", versions(*READABLE))
def test_code_and_symbols_give_the_same_variables(minor: str) -> None:
    program = toolchain(minor).build(TARGETS / "nopprof")
    assert oracle.globals_of(program) == oracle.globals_from_code(program)


@pytest.mark.parametrize("minor", versions("1.19", "1.22", "1.27"))
def test_the_oracle_reads_the_buckets_that_the_program_writes(minor: str, tmp_path: Path) -> None:
    program = toolchain(minor).build(TARGETS / "blockops")
    written = tmp_path / "block.pb.gz"
    with Target.start(program, f"-profile={written}", "-only=^(chan|mutex|cond)") as target:
        oracle.set_block_rate(target.pid, program, 1)
        target.ask("go", "done")
        assert json.loads(target.expect("{"))
        buckets = oracle.read_block_buckets(target.pid, program)
        target.ask("write", "written")
    own = pprof.decode(written.read_bytes(), kind="block")
    assert sorted(sample.values[0] for sample in own.samples) == sorted(b.count for b in buckets)
    theirs = sum(sample.values[1] for sample in own.samples)
    # The same cycles; but Go knows the counter's frequency only from two readings of two clocks,
    # between which a busy machine may take the processor away.
    assert sum(b.delay_ns for b in buckets) == pytest.approx(theirs, rel=0.2)


def test_a_rate_of_zero_ends_the_profile() -> None:
    program = toolchain("1.27").build(TARGETS / "nopprof")
    with Target.start(program) as target:
        oracle.set_block_rate(target.pid, program, 1)
        oracle.set_block_rate(target.pid, program, 0)
        target.ask("go", "done")
        assert oracle.read_block_buckets(target.pid, program) == []


def test_another_program_is_refused() -> None:
    program = toolchain("1.27").build(TARGETS / "nopprof")
    other = toolchain("1.27").build(TARGETS / "sleeper")
    with Target.start(other) as target, pytest.raises(oracle.OracleError, match="does not run"):
        oracle.set_block_rate(target.pid, program, 1)


def test_fzf_is_profiled() -> None:
    with Fzf() as fzf:
        oracle.set_block_rate(fzf.pid, fzf.program, 1)
        fzf.search(rounds=10)
        fzf.await_idle()
        buckets = oracle.read_block_buckets(fzf.pid, fzf.program)
        bias = oracle.load_bias(fzf.pid, fzf.program)
        program = fzf.program
    counts = leaves(program, bias, buckets)
    for leaf in ("sync.(*Cond).Wait", "runtime.selectgo", "runtime.chanrecv1"):
        assert counts[leaf] > 10, leaf
