"""Programs that keep no memory profile: what probes at its gates count, and what is left of it.

The judges: the program's own counters, and Go's own profile of the same work with a rate of 1.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profilers.heap.allocation_samples import OTHERS
from tests.builds import builds, in_full, versions
from tests.kernel.programs import program
from tests.kernel.verbs import PYTHON
from tests.recorder import Recorder, recording
from tests.targets_run import Target

EACH = ("--alloc-rate", "1")
NO_BOUND = ("--max-overhead", "0")
FEW_COLLECTIONS = {"GOGC": "off"}
TINY = 16  # bytes of a block of tiny objects
MANY = 45_000_000  # objects: enough for some windows
SURE = 5.0  # standard errors


@contextmanager
def recorded(
    target: Target, folder: Path, *arguments: str
) -> Iterator[tuple[Recorder, dict[str, Profile]]]:
    """Record while the block runs; then the profiles are in the dictionary, by their kinds."""
    found: dict[str, Profile] = {}
    folder.mkdir()
    with recording(target.pid, folder, "--profile", "heap,allocs", *arguments) as recorder:
        yield recorder, found
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == ExitCode.OK, finished.stderr
    for each in folder.iterdir():
        profile = pprof.decode(each.read_bytes())
        found[profile.kind or ""] = profile


def by_leaf(profile: Profile, value: int) -> Counter[str]:
    """The sum of a value by the innermost function, without its package."""
    found = Counter[str]()
    for sample in profile.samples:
        found[sample.frames[0].function.removeprefix("main.")] += sample.values[value]
    return +found


def under(profile: Profile, function: str) -> Iterator[Sample]:
    return (s for s in profile.samples if function in {f.function for f in s.frames})


def order(target: Target, *commands: str) -> None:
    for command in commands:
        target.ask(command, "done")


@pytest.mark.parametrize(("version", "mode"), builds())
def test_each_object_is_counted(version: str, mode: str, tmp_path: Path) -> None:
    with (
        Target.start(program("allocations", version, mode), env=FEW_COLLECTIONS) as target,
        recorded(target, tmp_path / "own", *EACH, *NO_BOUND) as (_, found),
    ):
        order(target, "mix 500")
    allocs = found["allocs"]
    counts, used = by_leaf(allocs, 0), by_leaf(allocs, 1)
    objects = {"first": 500, "withPointers": 500, "withHeader": 500, "medium": 500, "large": 50}
    assert {name: counts[name] for name in objects} == objects
    sizes = {"first": 64, "withPointers": 64, "withHeader": 1152, "medium": 3072, "large": 106496}
    assert {name: used[name] for name in sizes} == {n: sizes[n] * objects[n] for n in sizes}
    # Two of eight bytes share a block; others may have begun the first, and end some.
    assert 249 <= counts["tiny"] <= 253
    # The channel, the closure, and some runtime.g, which are allocated on another stack.
    assert sum(s.values[0] for s in under(allocs, "main.goroutine")) >= 100
    assert allocs.period == 1
    assert not any("standard error" in comment for comment in allocs.comments)
    assert not any("incomplete" in comment for comment in allocs.comments)


def work_rows(profile: Profile) -> Counter[tuple[tuple[str, ...], int]]:
    """The objects of each stack and size, of the work whose allocations chance does not change.

    Tiny objects share blocks with what others allocated before. Go cuts stacks, and so do we, at
    other depths.
    """
    found = Counter[tuple[tuple[str, ...], int]]()
    for sample in under(profile, "main.work"):
        stack = tuple(f"{f.function}:{f.line}" for f in sample.frames)
        if any(each.startswith(("main.maps", "main.text", "main.deep")) for each in stack):
            continue
        size = next(int(e.value) for e in sample.labels if e.key == "bytes")
        if size != TINY:
            found[stack, size] += sample.values[0]
    return +found


@pytest.mark.parametrize("version", versions())
def test_stacks_equal_gos(version: str, tmp_path: Path) -> None:
    with (
        Target.start(program("heap", version), "0", env=FEW_COLLECTIONS) as target,
        recorded(target, tmp_path / "ours", *EACH, *NO_BOUND) as (_, found),
    ):
        order(target, "make 60")
    with Target.start(program("heap", version), "1", env=FEW_COLLECTIONS) as target:
        order(target, "make 60", f"own {tmp_path}")
    theirs = work_rows(pprof.decode((tmp_path / "allocs.pb.gz").read_bytes()))
    assert len(theirs) >= 12
    assert work_rows(found["allocs"]) == theirs


def expected_error(objects: int, size: int, rate: int) -> float:
    """The standard error of an estimate by Go's own sampling, in objects."""
    part = -math.expm1(-size / rate)
    return math.sqrt(objects * (1 - part) / part)


@pytest.mark.parametrize("collections", [*in_full(False), True])
@pytest.mark.parametrize(("command", "times"), [*in_full(("turns", 1)), ("thirds", 3)])
def test_patterns_do_not_fool_it(
    command: str, times: int, *, collections: bool, tmp_path: Path
) -> None:
    """Sampling by spans sees 3 of 4 where 1 of 2 is true: each n-th object, in a loop."""
    rate, objects = 2048, 40_000
    env = {} if collections else FEW_COLLECTIONS
    with Target.start(program("allocations"), env=env) as target:
        if collections:
            order(target, "collect on")
        with recorded(target, tmp_path / "own", "--alloc-rate", str(rate), *NO_BOUND) as (_, found):
            order(target, f"{command} {objects}")
    counts = by_leaf(found["allocs"], 0)
    for name, true in (("first", objects), ("second", times * objects)):
        assert abs(counts[name] - true) < SURE * expected_error(true, 64, rate)
    assert any("standard error" in comment for comment in found["allocs"].comments)


@pytest.mark.full
def test_sampling_has_the_error_that_chance_has(tmp_path: Path) -> None:
    """256 stacks with as many objects each: estimates scatter as independent draws do."""
    rate, objects = 4096, 1500
    with (
        Target.start(program("allocations")) as target,
        recorded(target, tmp_path / "own", "--alloc-rate", str(rate), *NO_BOUND) as (_, found),
    ):
        order(target, f"spread {objects}")
    stacks = Counter[tuple[tuple[str, int], ...]]()
    for sample in under(found["allocs"], "main.second"):
        stacks[tuple((f.function, f.line) for f in sample.frames)] += sample.values[0]
    assert len(stacks) == 256
    error = expected_error(objects, 64, rate)
    deviations = [(estimate - objects) / error for estimate in stacks.values()]
    assert abs(sum(deviations)) / math.sqrt(len(deviations)) < SURE
    # The mean of n squares of normal deviates is 1, with a standard error of sqrt(2/n) = 0.09.
    mean_square = sum(deviation**2 for deviation in deviations) / len(deviations)
    assert 0.6 < mean_square < 1.5


@pytest.mark.full
def test_windows_keep_to_their_error(tmp_path: Path) -> None:
    with Target.start(program("allocations")) as target:
        bounded = ("--alloc-rate", "1", "--max-overhead", "5")
        with recorded(target, tmp_path / "own", *bounded) as (_, found):
            counts = [int(word) for word in target.ask(f"work {MANY}", "counts").split()[1:]]
    allocs = found["allocs"]
    comments = " ".join(allocs.comments)
    share = re.search(r"sampled ([\d.]+) % of the time, in (\d+) windows", comments)
    assert share, comments
    assert int(share[2]) >= 2
    reported = re.search(
        r"\+-(\S+) % on all bytes, at most \+-(\S+) % on the ten largest", comments
    )
    assert reported, comments
    error = float(reported[2].replace("<", "")) / 100
    # Which stack comes next, chance decides: it is the same all the time.
    assert error < 0.15
    ours = by_leaf(allocs, 0)
    for name, true in zip(("first", "second", "withPointers", "medium"), counts, strict=True):
        assert abs(ours[name] - true) / true < SURE * error + 0.01, (name, comments)
    # The program's own counters tell all of a size: windows only share it out.
    assert abs(ours["medium"] / counts[3] - 1) < 0.001


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize(
    ("name", "env", "command", "function"),
    [
        ("allocations", {}, "keep 300", "keepSmall"),
        *in_full(("heap", {"GODEBUG": "memprofilerate=0"}, "leak 300", "leak")),
    ],
)
def test_a_program_that_is_started_is_recorded_from_its_beginning(
    name: str, env: dict[str, str], command: str, function: str, version: str, tmp_path: Path
) -> None:
    """At its first instruction MemProfileRate is not 0 yet."""
    own = tmp_path / "own"
    ours = ("run", "--profile", "allocs", *EACH, *NO_BOUND, "-o", str(own), "--")
    done = subprocess.run(
        [*PYTHON, *ours, program(name, version)],
        input=f"{command}\n",
        text=True,
        capture_output=True,
        env={**os.environ, **env},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert by_leaf(pprof.decode(own.read_bytes(), kind="allocs"), 0)[function] == 300


@pytest.mark.full
def test_a_run_that_ends_before_a_window_says_what_it_lacks(tmp_path: Path) -> None:
    """Its allocations use up the budget at once; it has ended before that has grown again."""
    for number in range(5):
        done, allocs = ended_early(tmp_path / str(number))
        comments = "\n".join(allocs.comments)
        counted = by_leaf(allocs, 0)["first"]
        assert 0 < counted < 500_000
        part = re.search(r"^sampled ([\d.]+) % of the time, from the start until", comments, re.M)
        assert part, comments
        assert float(part[1]) < 50
        assert "standard error not known" in comments
        # What is missing is known if the program's own counters were read before it ended.
        if re.search(r"^not included: [\d.]+ MiB of [\d.]+ MiB, in objects of", comments, re.M):
            assert "have no stack: --max-overhead allowed probes for" in done.stderr
            assert "main.first" not in done.stderr  # its error is more than half of it
            assert "rows were seen too few times to rank" in done.stderr
            return
    pytest.fail(comments)


def ended_early(own: Path) -> tuple[subprocess.CompletedProcess[str], Profile]:
    """Run a program that allocates a lot and ends, with a recording of it within the bound."""
    command = ("run", "--profile", "allocs", "-o", str(own), "--", program("allocations"))
    done = subprocess.run(
        [*PYTHON, *command], input="turns 1000000\n", text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done, pprof.decode(own.read_bytes(), kind="allocs")


def in_use(profile: Profile) -> dict[str, int]:
    """The objects that these functions keep: of the size of which each has most.

    The runtime may allocate below them, too: goroutines of a collection that begins there.
    """
    most = dict.fromkeys(("keepSmall", "keepMedium", "keepLarge"), 0)
    for sample in profile.samples:
        name = sample.frames[0].function.removeprefix("main.")
        if name in most:
            most[name] = max(most[name], sample.values[2])
    return most


@pytest.mark.parametrize("version", versions())
def test_what_is_left_is_known_after_each_collection(version: str, tmp_path: Path) -> None:
    objects, larges = 3000, 30
    with (
        Target.start(program("allocations", version), env=FEW_COLLECTIONS) as target,
        recorded(target, tmp_path / "kept", *EACH, *NO_BOUND) as (_, kept),
    ):
        order(target, f"keep {objects}", f"reuse {objects}", "gc")
    assert in_use(kept["heap"]) == {
        "keepSmall": objects,
        "keepMedium": objects,
        "keepLarge": larges,
    }
    assert by_leaf(kept["heap"], 2)["withPointers"] <= 64  # those that are still referred to
    with (
        Target.start(program("allocations", version), env=FEW_COLLECTIONS) as target,
        recorded(target, tmp_path / "dropped", *EACH, *NO_BOUND) as (_, dropped),
    ):
        order(target, f"keep {objects}", "drop", "gc")
        order(target, f"reuse {objects // 6}")  # in slots of those that are gone: not of all
    left = {"keepSmall": 2000, "keepMedium": 2000, "keepLarge": 20}
    assert in_use(dropped["heap"]) == left
    assert not any("too fast" in comment for comment in dropped["heap"].comments)


@pytest.mark.full
def test_objects_that_are_not_followed_count_as_allocated(tmp_path: Path) -> None:
    """A profiler that can't run for a while counts all, but learns not of each where it is."""
    objects = 400_000
    with (
        Target.start(program("allocations"), env=FEW_COLLECTIONS) as target,
        recorded(target, tmp_path / "own", *EACH, *NO_BOUND) as (recorder, found),
    ):
        recorder.send(signal.SIGSTOP)
        recorder.wait_until_stopped()
        order(target, f"turns {objects}")
        recorder.send(signal.SIGCONT)
    assert by_leaf(found["allocs"], 0)["first"] == objects
    lost = {kind: [c for c in each.comments if "not followed" in c] for kind, each in found.items()}
    assert lost["allocs"] == []
    (output,) = lost["heap"]
    assert re.match(r"incomplete: \d+ sampled objects not followed", output)


@pytest.mark.full
def test_collections_without_end_lose_nothing_that_is_there(tmp_path: Path) -> None:
    objects = 2000
    with (
        Target.start(program("allocations")) as target,
        recorded(target, tmp_path / "own", *EACH, *NO_BOUND) as (_, found),
    ):
        order(target, "collect on", f"keep {objects}", f"reuse {objects}", "await 500")
    kept = in_use(found["heap"])
    assert kept["keepSmall"] == kept["keepMedium"] == objects
    assert any("came too fast to look after each" in comment for comment in found["heap"].comments)


def test_what_was_there_before_is_one_rest_for_each_size(tmp_path: Path) -> None:
    before, later = 2000, 100
    with Target.start(program("allocations"), env=FEW_COLLECTIONS) as target:
        order(target, f"keep {before}")
        with recorded(target, tmp_path / "own", *EACH, *NO_BOUND) as (_, found):
            order(target, f"keep {later}")
    heap = found["heap"]
    assert in_use(heap)["keepMedium"] == later
    rest = [s for s in heap.samples if s.frames[0].function == OTHERS]
    sizes = {next((int(e.value) for e in s.labels), 0): s for s in rest}
    assert before <= sizes[1152].values[2] <= before + 50  # some are the runtime's
    assert sizes[0].values[3] >= 20 * 106496
    assert all(s.values[:2] == (0, 0) for s in rest)
    assert sum(s.values[3] for s in rest) < 64 << 20


def test_a_program_that_dies_leaves_what_was_counted(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    with Target.start(program("allocations"), env=FEW_COLLECTIONS) as target:
        arguments = ("--profile", "heap,allocs", *EACH, *NO_BOUND)
        with recording(target.pid, folder, *arguments) as recorder:
            order(target, "mix 100")
            target.kill()
            finished = recorder.finish()
    assert finished.code == ExitCode.OK, finished.stderr
    profiles = {p.kind: p for p in (pprof.decode(f.read_bytes()) for f in folder.iterdir())}
    assert by_leaf(profiles["allocs"], 0)["first"] == 100
    assert profiles["heap"].samples
