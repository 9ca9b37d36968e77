"""How long our BPF programs take: bpf/common/cost.h itself, by a clock that the test sets."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ebpfprof.overhead.cost import Runs, runs

BPF = Path(__file__).parents[3] / "bpf"
# What BCC and the kernel would give it: a map with one row, and a clock.
PROGRAM = """
#include <stdint.h>
typedef uint64_t u64;
#define __always_inline inline __attribute__((always_inline))
#define MAX_TARGETS 1
#define BPF_PERCPU_ARRAY(name, type, size) \\
    type name##_row; \\
    static type *name##_lookup(int *index) { return &name##_row; } \\
    static struct { type *(*lookup)(int *); } name = {name##_lookup}
static u64 now_ns = 1000;
static u64 bpf_ktime_get_ns(void) { return now_ns; }
#include "common/cost.h"
void run(u64 takes_ns) {
    struct cost *cost = run_begins(0);
    now_ns += takes_ns;
    run_ends(cost);
    now_ns += 1000;
}
u64 told(int field) {
    return field == 0 ? costs_row.runs : field == 1 ? costs_row.timed : costs_row.timed_ns;
}
"""
USUAL_NS = 200
COLD_NS = 40_000
PREEMPTED_NS = 3_000_000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cost")
    (folder / "cost.c").write_text(PROGRAM)
    command = ["gcc", "-shared", "-fPIC", "-O1", f"-I{BPF}", "-o", "cost.so", "cost.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "cost.so"


def told(library: Path, folder: Path, lengths_ns: Sequence[int]) -> Runs:
    """What is told of runs that take so long, on a processor that had none before."""
    fresh = folder / f"{len(list(folder.iterdir()))}.so"  # with sums of its own
    fresh.write_bytes(library.read_bytes())
    loaded = ctypes.CDLL(str(fresh))
    loaded.run.argtypes, loaded.told.restype = [ctypes.c_uint64], ctypes.c_uint64
    for length_ns in lengths_ns:
        loaded.run(length_ns)
    return runs(*(loaded.told(field) for field in range(3)))


def test_runs_that_are_alike_are_told_as_they_are(library: Path, tmp_path: Path) -> None:
    for count in (10, 100, 10_000):
        found = told(library, tmp_path, [USUAL_NS] * count)
        assert found.count == count
        assert found.each_ns == USUAL_NS


def test_of_few_runs_some_are_timed_and_of_many_one_in_61(library: Path, tmp_path: Path) -> None:
    assert told(library, tmp_path, [USUAL_NS] * 20).timed >= 3
    often = 5 * 17
    assert told(library, tmp_path, [USUAL_NS] * (often + 61 * 100)).timed in range(110, 120)


@pytest.mark.parametrize("count", [20, 50, 1000])
def test_one_run_that_took_long_is_not_taken_for_all(
    library: Path, tmp_path: Path, count: int
) -> None:
    """The first of a processor, with cold caches; or one that was interrupted for a moment."""
    cold = told(library, tmp_path, [COLD_NS, *[USUAL_NS] * count])
    assert cold.each_ns == USUAL_NS
    for number in (3, 9, count // 2, count - 1):
        lengths = [USUAL_NS] * count
        lengths[number] = COLD_NS
        assert told(library, tmp_path, lengths).each_ns == USUAL_NS, number


def test_what_another_thread_ran_meanwhile_does_not_count(library: Path, tmp_path: Path) -> None:
    """However often: no program of ours takes as long as another thread's turn."""
    lengths = [PREEMPTED_NS if number % 3 == 1 else USUAL_NS for number in range(3000)]
    assert told(library, tmp_path, lengths).each_ns == USUAL_NS


def test_programs_of_different_length_count_by_how_often_they_run(
    library: Path, tmp_path: Path
) -> None:
    """A probe where goroutines park takes twice what one takes where they are woken."""
    found = told(library, tmp_path, [400, 100] * 20_000)
    assert found.each_ns == pytest.approx(250, rel=0.02)
