"""Very many goroutines, stacks and waits: nothing is lost, and memory stays bounded.

`python -m tests.bench.bench_scale` does that all at once, for a chosen time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.kernel import features
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from tests.bench.scalerecorder import maps_bytes
from tests.kernel.inside import collector_of_waits
from tests.kernel.programs import program
from tests.recorder import recording
from tests.targets_run import Target

pytestmark = pytest.mark.alone

MAX_MEMORY_BYTES: Final = 150_000_000
UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# A recorder that is idle takes about 6 MB of the kernel's memory; all rows at once took 69 MB.
IDLE_MAPS_BYTES: Final = 12_000_000


@contextmanager
def crowd(goroutines: int, stacks: int, depth: int, *arguments: str) -> Iterator[Target]:
    sizes = (f"-goroutines={goroutines}", f"-stacks={stacks}", f"-depth={depth}")
    with Target.start(program("scale"), *sizes, *arguments) as target:
        yield target


def record_crowd(folder: Path, target: Target) -> tuple[Profile, str]:
    """All goroutines come to wait and are woken once; the profile and what was said at the end."""
    output = folder / "block.prof"  # not of those that all readers of profiles would take
    with recording(target.pid, folder, "--long", "-o", str(output)) as recorder:
        target.ask("park", "parked")
        target.ask("release 1", "parked")
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == ExitCode.OK, finished.stderr
    assert "incomplete" not in finished.stderr
    return pprof.decode(output.read_bytes(), kind="block"), finished.stdout.decode()


def counts_by_way(profile: Profile) -> Counter[int]:
    """How often goroutines waited at the end of each way."""
    counts = Counter[int]()
    for sample in profile.samples:
        found = way(sample)
        if found is not None:
            counts[found] += sample.values[0]
    return counts


def way(sample: Sample) -> int | None:
    """Which way a stack went, as the program's functions tell; None if it is another one."""
    names = [frame.function for location in sample.locations for frame in location.frames]
    if "main.deep" not in names:
        return None
    turns = [name for name in names if name in ("main.left", "main.right")]
    turns.reverse()
    assert turns[0] == "main.left"
    return sum(1 << at for at, turn in enumerate(turns[1:]) if turn == "main.right")


def memory_bytes(said: str) -> int:
    """The peak that the command reports itself."""
    found = re.search(r"ebpfprof used .* and ([0-9.]+) (\wiB) of memory", said)
    assert found, said
    return int(float(found[1]) * UNITS[found[2]])


def test_a_hundred_thousand_goroutines_are_recorded(tmp_path: Path) -> None:
    with crowd(100_000, 50, 8) as target:
        profile, output = record_crowd(tmp_path, target)
    assert counts_by_way(profile) == dict.fromkeys(range(50), 2000)
    assert memory_bytes(output) < MAX_MEMORY_BYTES


@pytest.mark.full
def test_twenty_thousand_deep_stacks_are_recorded(tmp_path: Path) -> None:
    with crowd(20_000, 20_000, 120) as target:
        profile, output = record_crowd(tmp_path, target)
    assert counts_by_way(profile) == dict.fromkeys(range(20000), 1)
    assert memory_bytes(output) < MAX_MEMORY_BYTES


def test_waits_without_a_pause_are_counted_as_by_go(tmp_path: Path) -> None:
    with crowd(0, 500, 24, "-blockrate=1") as target:
        with recording(target.pid, tmp_path) as recorder:
            target.ask("run 1000", "ran")
            recorder.interrupt()
            finished = recorder.finish()
        counted = int(target.ask("count", "counted").split()[1])
    (path,) = tmp_path.glob("*.pb.gz")
    counts = counts_by_way(pprof.decode(path.read_bytes(), kind="block"))
    assert "incomplete" not in finished.stderr
    assert len(counts) == 500
    assert counts.total() == counted


def test_tables_hold_four_times_the_present_goroutines() -> None:
    with crowd(70_000, 1, 4) as target:
        target.ask("park", "parked")
        with Session([target.pid], Options(kinds=("block",))) as session:
            assert rows(session, "waits") > 4 * 70_000
    with crowd(10, 1, 4) as target, Session([target.pid], Options(kinds=("block",))) as session:
        assert rows(session, "waits") == 1 << 18


def test_maps_allocate_memory_for_used_rows_only() -> None:
    assert features.have_growing_maps()
    with crowd(10_000, 1, 4) as target, Session([target.pid], Options(kinds=("block",))) as session:
        session.start()
        idle = maps_bytes()
        target.ask("park", "parked")
        assert idle < IDLE_MAPS_BYTES
        assert maps_bytes() > idle + 10_000 * 64


def test_kernels_that_preallocate_rows_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As before Linux 6.1."""
    monkeypatch.setattr(features, "have_growing_maps", lambda: False)
    with crowd(1_000, 10, 8) as target, Session([target.pid], Options(kinds=("block",))) as session:
        session.start()
        assert maps_bytes() > IDLE_MAPS_BYTES
        target.ask("park", "parked")
        target.ask("release 2", "parked")
        ((profile,),) = [report.profiles for report in session.finish()]
        assert session.losses() == []
    assert counts_by_way(profile) == dict.fromkeys(range(10), 200)


def rows(session: Session, name: str) -> int:
    return collector_of_waits(session._live)._program.maps[name].max_entries
