"""--open: goroutines that still wait at the end, since when, for which lock."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from ebpfprof.errors import CorruptBinary
from ebpfprof.export import pprof
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits import collector, open_recorder
from ebpfprof.profilers.waits.open_waits import ParkedAtEnd, read_parked
from ebpfprof.profilers.waits.rows import Waiting
from ebpfprof.recording.session import Session
from symbolizer import GoTableError
from tests.builds import NEWEST, in_full, versions
from tests.differential.mutexes import losses, total
from tests.kernel.contended_locks import BUILDS, labels_of, truths
from tests.kernel.programs import program
from tests.recorder import Finished, recording, run, timeless
from tests.targets_run import SLOWNESS, Target
from tests.toolchains import toolchain

BEFORE: Final = "before the recording"
# Goroutines are read a while before the recording ends, a longer one on an emulated processor.
LEEWAY_NS: Final = round(50_000_000 * min(SLOWNESS, 4))
RUNS: Final = (
    *in_full(*((*build, (kind,)) for build in BUILDS for kind in ("block", "mutex"))),
    *in_full(("1.19", "plain", ("block", "mutex"))),
    (NEWEST, "plain", ("block", "mutex")),
)

Stays = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Open:
    """Goroutines that hang in one function: how many, and how long all of them have waited."""

    count: int
    waiting_ns: int


# By function, and by whether it began before the recording.
Found = dict[tuple[str, bool], Open]


def hang(target: Target, group: str) -> Stays:
    stays: Stays = json.loads(target.ask(f"hang {group}", "{"))
    assert len(stays) == 6
    return stays


def open_profile(folder: Path) -> Profile:
    (path,) = folder.glob("*.open.pb.gz")
    return pprof.decode(path.read_bytes(), kind="open")


def function(sample: Sample) -> str:
    """The innermost function of package main."""
    names = [frame.function for at in sample.locations for frame in at.frames]
    return next(name for name in names if name.startswith("main."))


def began_before(sample: Sample) -> bool:
    return labels_of(sample).get("began") == BEFORE


def found_in(samples: Iterable[Sample]) -> Found:
    groups = defaultdict(list)
    for sample in samples:
        groups[function(sample), began_before(sample)].append(sample)
    sums = {key: total(group) for key, group in groups.items()}
    return {key: Open(value.count, value.delay_ns) for key, value in sums.items()}


def end_ns(profile: Profile) -> int:
    """When the recording ended, by CLOCK_MONOTONIC."""
    return profile.time_ns + profile.duration_ns - (time.time_ns() - time.monotonic_ns())


def expected(early: Stays, late: Stays, profile: Profile, *, with_block: bool) -> Found:
    end = end_ns(profile)
    found: Found = {}
    for name in early:
        if with_block or early[name]["address"]:
            starts = early[name]["starts_ns"]
            found[name, True] = Open(len(starts), len(starts) * profile.duration_ns)
    for name in late:
        if with_block or late[name]["address"]:
            starts = late[name]["starts_ns"]
            found[name, False] = Open(len(starts), sum(end - start for start in starts))
    return found


def assert_equal(found: Found, truth: Found) -> None:
    assert {key: each.count for key, each in found.items()} == {
        key: each.count for key, each in truth.items()
    }
    for key, known in truth.items():
        leeway_ns = max(known.waiting_ns / 50, known.count * 3 * LEEWAY_NS)
        assert abs(found[key].waiting_ns - known.waiting_ns) < leeway_ns, key


@pytest.mark.parametrize(
    ("version", "mode", "kinds"),
    RUNS,
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_open_waits_have_their_start_times_and_locks(
    version: str, mode: str, kinds: tuple[Waiting, ...], tmp_path: Path
) -> None:
    labels = ("--lock-labels",) if "mutex" in kinds else ()
    with Target.start(program("heldlocks", version, mode)) as target:
        early = hang(target, "early")
        arguments = ("--profile", ",".join(kinds), "--open", *labels)
        with recording(target.pid, tmp_path, *arguments) as recorder:
            target.ask("contend", "[")  # time passes
            late = hang(target, "late")
            hang(target, "woken")
            # Long enough that waits can be distinguished.
            until_ns = time.monotonic_ns() + 20 * LEEWAY_NS
            while time.monotonic_ns() < until_ns:
                truths(target.ask("contend", "["))
            target.ask("release woken", "released")
            recorder.interrupt()
            finished = recorder.finish()
    assert finished.code == 0, finished.stderr

    assert len(list(tmp_path.iterdir())) == 1 + len(kinds)
    profile = open_profile(tmp_path)
    assert losses(profile) == []
    assert [each.type for each in profile.sample_types] == ["goroutines", "waiting"]
    truth = expected(early, late, profile, with_block="block" in kinds)
    assert_equal(found_in(profile.samples), truth)
    for sample in profile.samples:
        stays = early if began_before(sample) else late
        assert labels_of(sample) == {
            **({"began": BEFORE} if began_before(sample) else {}),
            **(lock_labels(function(sample), stays[function(sample)], mode) if labels else {}),
        }
    assert_shown(finished, profile, target)


# Without DWARF, the code of the method that locks tells the field of its receiver.
FIELDS: Final = {"inMutex": "mu", "inRLock": "forReaders", "inRWLock": "forWriters"}


def lock_labels(name: str, stay: dict[str, Any], mode: str) -> dict[str, str | int]:
    """What --lock-labels says of a wait in the function of this name."""
    if not stay["address"]:
        return {}
    field = FIELDS[name.rpartition(".")[2]]
    lock = f"main.group.{field}" if mode == "stripped" else stay["name"]
    return {"lock": lock, "lock_address": f"{stay['address']:#x}"}


def assert_shown(finished: Finished, profile: Profile, target: Target) -> None:
    """The terminal shows each function of the open profile below a heading."""
    text = finished.stdout.decode()
    heading = f"\nWaits in progress of process {target.pid} (heldlocks) after "
    assert text.count(heading) == 1
    table = text.partition(heading)[2].splitlines()
    assert table[1].split()[:3] == ["Waiting", "Share", "Goroutines"]
    assert all(any(function(sample) in line for line in table) for sample in profile.samples)
    assert f"Written: heldlocks-{target.pid}.open.pb.gz" in map(timeless, table)


@pytest.mark.parametrize("kind", [*in_full("block"), "mutex"])
@pytest.mark.parametrize("version", versions("1.19", NEWEST))
def test_an_overtaken_goroutine_still_waits(version: str, kind: Waiting, tmp_path: Path) -> None:
    with (
        Target.start(program("heldlocks", version)) as target,
        recording(target.pid, tmp_path, "--profile", kind, "--open") as recorder,
    ):
        stays: Stays = json.loads(target.ask("overtake", "{"))
        target.ask("contend", "[")  # time passes
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    profile = open_profile(tmp_path)
    truth = expected({}, stays, profile, with_block=True)
    found = found_in(profile.samples)
    found.pop(("main.(*contested).leave", False), None)  # in a channel
    assert_equal(found, truth)
    # It was woken: the waits that ended are counted up to then.
    (path,) = tmp_path.glob(f"*.{kind}.pb.gz")
    ended = pprof.decode(path.read_bytes()).samples
    ended_in = "woken" if kind == "block" else "leave"
    assert found_in(ended)[f"main.(*contested).{ended_in}", False].count == 1


@pytest.mark.parametrize("kind", [*in_full("block"), "mutex"])
def test_open_waits_are_read_when_the_duration_ends(kind: Waiting, tmp_path: Path) -> None:
    with Target.start(program("heldlocks")) as target:
        early = hang(target, "early")
        arguments = ("--pid", str(target.pid), "-d", "0.5", "--profile", kind, "--open")
        finished = run(*arguments, folder=tmp_path)
    assert finished.code == 0, finished.stderr
    profile = open_profile(tmp_path)
    assert profile.duration_ns >= 500_000_000
    truth = expected(early, {}, profile, with_block=kind == "block")
    assert_equal(found_in(profile.samples), truth)
    tags = toolchain("1.27").go("tool", "pprof", "-tags", *names_in(tmp_path), cwd=tmp_path)
    assert BEFORE in tags


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*.open.pb.gz")]


@pytest.mark.parametrize("options", [*in_full(((),)), ("--open",)])
def test_an_ended_target_has_no_open_waits(options: tuple[str, ...], tmp_path: Path) -> None:
    """The profiles are written, and the exit code is the same with and without --open."""
    arguments = ("--profile", "mutex", "--lock-labels", *options)
    with Target.start(program("heldlocks")) as target:
        hang(target, "early")
        with recording(target.pid, tmp_path, *arguments) as recorder:
            hang(target, "late")
            truth = truths(target.ask("contend", "["))
            target.close_input()
            target.wait()
            finished = recorder.finish()
    assert finished.code == 0
    assert f"process {target.pid} ended; the profile has everything until then" in finished.stderr
    (path,) = tmp_path.glob("*.mutex.pb.gz")
    recorded = pprof.decode(path.read_bytes())
    assert total(recorded.samples).count == sum(t.releases.total() for t in truth.values())
    if options:
        profile = open_profile(tmp_path)
        assert profile.samples == ()
        assert any(comment.startswith("ended early: ") for comment in profile.comments)
        assert "no goroutine waits" in finished.stdout.decode()
    else:
        assert names_in(tmp_path) == []


def test_woken_goroutines_are_not_open_waits(tmp_path: Path) -> None:
    with Target.start(program("heldlocks")) as target:
        hang(target, "early")
        with recording(target.pid, tmp_path, "--open") as recorder:
            hang(target, "late")
            target.ask("release early", "released")
            target.ask("release late", "released")
            recorder.interrupt()
            finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    assert open_profile(tmp_path).samples == ()


def test_without_the_option_no_open_waits_are_shown(tmp_path: Path) -> None:
    with Target.start(program("heldlocks")) as target:
        hang(target, "early")
        arguments = ("--pid", str(target.pid), "-d", "0.1", "--profile", "block,mutex")
        finished = run(*arguments, folder=tmp_path)
    assert finished.code == 0, finished.stderr
    assert "still wait" not in finished.stdout.decode()
    assert names_in(tmp_path) == []


def test_a_goroutine_woken_during_the_scan_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Target.start(program("heldlocks")) as target:

        def read_and_release(go: GoTarget, now_ns: int, *, has_labels: bool) -> ParkedAtEnd:
            parked = read_parked(go, now_ns, has_labels=has_labels)
            assert len(parked.goroutines) >= 9
            target.ask("release woken", "released")
            return parked

        monkeypatch.setattr(open_recorder, "read_parked", read_and_release)
        with Session([target.pid], Options(open_waits=True)) as session:
            session.start()
            hang(target, "woken")
            ((_, profile),) = [report.profiles for report in session.finish()]
    assert profile.samples == ()


@pytest.mark.full
def test_each_target_has_its_own_open_waits(tmp_path: Path) -> None:
    path = program("heldlocks")
    with Target.start(path) as one, Target.start(path) as other:
        early = hang(one, "early")
        with recording(one.pid, tmp_path, "--open", "--pid", str(other.pid)) as recorder:
            late = hang(other, "late")
            recorder.interrupt()
            finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    profiles = []
    for pid in (one.pid, other.pid):
        (path,) = tmp_path.glob(f"heldlocks-{pid}-*.open.pb.gz")
        profiles.append(pprof.decode(path.read_bytes(), kind="open"))
    assert_equal(found_in(profiles[0].samples), expected(early, {}, profiles[0], with_block=True))
    assert_equal(found_in(profiles[1].samples), expected({}, late, profiles[1], with_block=True))


def test_an_unreadable_goroutine_list_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(go: GoTarget, now_ns: int, *, has_labels: bool) -> ParkedAtEnd:
        raise GoTableError("no list of goroutines")

    monkeypatch.setattr(open_recorder, "read_parked", fail)
    with (
        Target.start(program("heldlocks")) as target,
        Session([target.pid], Options(open_waits=True)) as session,
    ):
        session.start()
        target.ask("contend", "[")
        ((block, profile),) = [report.profiles for report in session.finish()]
        (failure,) = session.failures()
    assert isinstance(failure, CorruptBinary)
    assert block.samples
    assert profile.samples == ()
    (comment,) = [each for each in profile.comments if each.startswith("open waits are missing: ")]
    assert "no list of goroutines" in comment


@pytest.mark.full
def test_a_target_that_ends_during_the_scan_has_no_open_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Target.start(program("heldlocks")) as target:

        def kill_and_read(go: GoTarget, now_ns: int, *, has_labels: bool) -> ParkedAtEnd:
            target.kill()
            return read_parked(go, now_ns, has_labels=has_labels)

        monkeypatch.setattr(open_recorder, "read_parked", kill_and_read)
        with Session([target.pid], Options(open_waits=True)) as session:
            session.start()
            target.ask("contend", "[")
            ((block, profile),) = [report.profiles for report in session.finish()]
            assert session.failures() == []
            assert len(session.endings()) == 1
    assert block.samples
    assert profile.samples == ()
    assert any(comment.startswith("ended early: ") for comment in profile.comments)


def test_with_a_full_table_open_waits_have_no_start_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For goroutines without a row the start of the wait is unknown, so none is shown."""
    room = 4
    monkeypatch.setattr(collector, "MAX_WAITS", room)
    with Target.start(program("heldlocks")) as target:
        early = hang(target, "early")
        options = Options(kinds=("mutex",), open_waits=True, lock_labels=True)
        with Session([target.pid], options) as session:
            session.start()
            target.ask("hang late", "{")
            ((_, profile),) = [report.profiles for report in session.finish()]
            lost = {loss.name: loss.count for loss in session.losses()}
    in_locks = {name: len(stay["starts_ns"]) for name, stay in early.items() if stay["address"]}
    assert set(lost) == {"waits_full"}
    assert sum(in_locks.values()) - room <= lost["waits_full"] < sum(in_locks.values())
    assert any("waits_full" in comment for comment in profile.comments)
    found = found_in(profile.samples)
    assert {name: each.count for (name, _), each in found.items()} == {
        name: 2 * count for name, count in in_locks.items()
    }
    assert not any(before for _, before in found)
