"""How much memory the histograms of 10,000 stacks take, in the kernel and in Python."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Final

import numpy as np

from ebpfprof.kernel import c_facts
from ebpfprof.kernel.maps import BpfMap
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits.collector import MAX_LENGTHS, MAX_STACKS
from ebpfprof.profilers.waits.wait_tables import COUNT_SHIFT
from ebpfprof.recording.live import LiveSession
from tests.kernel.inside import map_of_lengths, table_of_lengths

OPTIONS: Final = Options(kinds=("block",))
STACKS: Final = 10_000
MOST_BYTES: Final = 10_000_000
MOST_ROWS: Final = MAX_LENGTHS // MAX_STACKS
"""For each stack there is room for so many."""
USUAL_ROWS: Final = 2
USUAL_BUCKETS: Final = 10
FIRST_ROW: Final = 9
"""The rows of a stack are neighbours: waits of 17 us or longer."""
_IN_ROW: Final = c_facts.number("waits/lengths.h", "LENGTHS_IN_ROW")
_ROW_BITS: Final = c_facts.number("waits/lengths.h", "LENGTH_ROW_BITS")


def test_in_the_kernel_those_of_10_000_stacks_take_10_mb_at_most() -> None:
    with LiveSession(OPTIONS, capacity=1) as live:
        lengths = map_of_lengths(live)
        fill(lengths, MOST_ROWS, _IN_ROW * MOST_ROWS)
        assert allocated_bytes(lengths) <= MOST_BYTES


def test_usual_ones_take_10_mb_at_most_with_what_python_reads_of_them() -> None:
    with LiveSession(OPTIONS, capacity=1) as live:
        lengths = map_of_lengths(live)
        fill(lengths, USUAL_ROWS, USUAL_BUCKETS)
        in_kernel = allocated_bytes(lengths)
        tracemalloc.start()
        try:
            table = table_of_lengths(live).read()
            in_python, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    print(f"{in_kernel:,} bytes in the kernel, {in_python:,} in Python")
    found = [table.of(stack << _ROW_BITS).lengths for stack in (1, STACKS)]
    assert [one.counts for one in found] == [(1,) * USUAL_BUCKETS] * 2
    assert in_kernel + in_python <= MOST_BYTES


def fill(lengths: BpfMap, rows_of_stack: int, buckets: int) -> None:
    """Add rows of STACKS stacks; in each stack, as many buckets have one wait each."""
    stacks = np.arange(1, STACKS + 1, dtype=np.uint64) << np.uint64(_ROW_BITS)
    numbers = np.arange(FIRST_ROW, FIRST_ROW + rows_of_stack, dtype=np.uint64)
    keys = (stacks[:, None] | numbers).reshape(-1)
    rows = np.zeros((STACKS, rows_of_stack), lengths.types[1])
    rows["delay_ns"] = 1
    last = _IN_ROW * rows_of_stack
    counts = np.zeros((STACKS, last), np.uint64)
    counts[:, last - buckets :] = 1 << COUNT_SHIFT
    counts[:, [0, last - buckets]] = counts[:, [last - buckets, 0]]  # both rows have some
    rows["counts"] = counts.reshape(rows["counts"].shape)
    assert lengths.update(keys, rows.reshape(-1)) == len(keys)


def allocated_bytes(bpf_map: BpfMap) -> int:
    """What the kernel has allocated for a map and its rows (Linux 6.4, htab_map_mem_usage)."""
    text = Path(f"/proc/self/fdinfo/{bpf_map.fd}").read_text()
    found = re.search(r"^memlock:\s*(\d+)$", text, re.MULTILINE)
    assert found, text
    return int(found[1])
