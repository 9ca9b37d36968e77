"""The allocations of Go's own test suites, beside what Go's own profile says of them.

Not all that a suite does is the same each time: hashes, pools and timers differ. So Go records two
runs, and judges by the stacks that it counts the same in both.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.suites import ARGUMENTS, suite

TINY = 16  # bytes of a block of tiny objects: who opens it is chance
# Go counts 32 or 128 logical frames, and ebpfprof 136 physical ones.
SHORTEST_LIMIT, LIMIT = 28, 120
# What these do depends on the arguments of the command, on random hashes, or on what is in a pool.
OTHERWISE = ("os.runtime_args", "testing.(*M).after", "sync.(*Pool)", "sync.(*Map)", "HashTrieMap")
MOST_BY_CHANCE = 1 / 300
Key = tuple[tuple[tuple[str, int], ...], int]


def counts(profile: Profile, limit: int) -> Counter[Key]:
    """Allocated objects by stack and size."""
    found: Counter[Key] = Counter()
    for sample in profile.samples:
        size = next((int(label.value) for label in sample.labels if label.key == "bytes"), 0)
        functions = [frame.function for frame in sample.frames]
        if size <= TINY or any(each in " ".join(functions) for each in OTHERWISE):
            continue
        if all(name.startswith(("runtime.", "runtime/pprof.")) for name in functions):
            continue  # of the runtime's own, Go shows mallocgc, too
        stack = tuple((frame.function, frame.line) for frame in sample.frames)
        found[stack[:limit], size] += sample.values[0]
    return found


def read(path: Path) -> Profile:
    return pprof.decode(path.read_bytes(), kind="allocs")


def ran(program: Path, folder: Path, rate: int, before: tuple[str, ...], *more: str) -> None:
    done = subprocess.run(
        [*before, program, *ARGUMENTS, *more],
        cwd=folder,
        env={**os.environ, "GODEBUG": f"memprofilerate={rate}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("package", "version", "limit"),
    [
        ("regexp", "1.19", SHORTEST_LIMIT),
        ("regexp", "1.27", LIMIT),
        ("encoding/xml", "1.22", SHORTEST_LIMIT),
        ("encoding/xml", "1.25", LIMIT),
        ("text/template", "1.24", LIMIT),
    ],
)
def test_allocations_are_those_that_go_counts(
    package: str, version: str, limit: int, tmp_path: Path
) -> None:
    program, folder = suite(package, version)
    gos = [tmp_path / "first", tmp_path / "second"]
    for own in gos:
        ran(program, folder, 1, (), f"-test.memprofile={own}", "-test.memprofilerate=1")
    own = tmp_path / "ours"
    exact = ("--profile", "allocs", "--alloc-rate", "1", "--max-overhead", "0", "-o", str(own))
    ran(program, folder, 0, (sys.executable, "-m", "ebpfprof", "run", *exact, "--"))
    first, second, ours = (counts(read(each), limit) for each in (*gos, own))
    agreed = {key: count for key, count in first.items() if second[key] == count}
    assert len(agreed) > 0.95 * len(first)
    assert len(agreed) > 2000
    wrong = {key: (count, ours[key]) for key, count in agreed.items() if ours[key] != count}
    # Two runs of Go agree by chance, too: on a pool that was empty, a goroutine that had to wait.
    assert len(wrong) <= MOST_BY_CHANCE * len(agreed), wrong
    # It allocates as a wrapper, which Go leaves out where a normal call of it is left out, too.
    assert "reflect.callReflect" not in {stack[0][0] for stack, _ in ours}
    # Go's own counts begin later: before Go 1.20, after the variables of packages are there.
    assert 0.998 < ours.total() / first.total() < 1.02
