"""The block profile of a program that we did not write and that knows nothing of profiling.

Go's own profiler judges here, too: the test, not the product, switches it on in the program's
memory and reads what it recorded (tests/oracle.py).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ebpfprof.profile.model import Profile
from symbolizer import ElfFile, GoBinary
from tests import oracle
from tests.foreign import Fzf
from tests.recorder import only_profile, recording

# (function, file, line) of each logical frame, leaf first.
Flat = tuple[tuple[str, str, int], ...]


def as_go_recorded(program: Path, bias: int, buckets: list[oracle.Bucket]) -> Counter[Flat]:
    """Go 1.19 keeps one return address for each logical frame."""
    counts: Counter[Flat] = Counter()
    with ElfFile.open(program) as elf:
        binary = GoBinary.open(elf)
        for bucket in buckets:
            frames = [binary.frames(pc - 1 - bias)[0] for pc in bucket.stack]
            stack = tuple((f.function, f.file, f.line) for f in frames)
            counts[tuple(f for f in stack if f[0] != "runtime.goexit")] += int(bucket.count)
    return counts


def as_we_recorded(profile: Profile) -> Counter[Flat]:
    counts: Counter[Flat] = Counter()
    for sample in profile.samples:
        frames = [frame for location in sample.locations for frame in location.frames]
        counts[tuple((f.function, f.file, f.line) for f in frames)] += sample.values[0]
    return counts


@pytest.mark.full
def test_waits_of_fzf_are_counted_as_by_its_runtime(tmp_path: Path) -> None:
    with Fzf() as fzf, recording(fzf.pid, tmp_path) as recorder:
        oracle.set_block_rate(fzf.pid, fzf.program, 1)
        fzf.search(rounds=20)
        fzf.await_idle()
        recorder.interrupt()
        finished = recorder.finish()
        assert finished.code == 0, finished.stderr
        buckets = oracle.read_block_buckets(fzf.pid, fzf.program)
        bias = oracle.load_bias(fzf.pid, fzf.program)
        theirs = as_go_recorded(fzf.program, bias, buckets)
    profile = only_profile(tmp_path)
    ours = as_we_recorded(profile)

    assert theirs.total() > 500
    assert ours == theirs
    delay_ns = sum(sample.values[1] for sample in profile.samples)
    events = theirs.total()
    assert abs(delay_ns - sum(b.delay_ns for b in buckets)) < delay_ns // 100 + 50_000 * events
