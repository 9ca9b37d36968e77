"""Locks: the table of --by-lock and the labels of --lock-labels, against a target that knows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.console.text import duration
from ebpfprof.errors import ExitCode
from ebpfprof.profile.model import Kind, Profile, Sample
from tests.builds import builds, in_full, versions
from tests.differential.mutexes import agree_once, losses, total, written_profiles
from tests.differential.stacks import delay_differences, differences
from tests.kernel.contended_locks import (
    BUILDS,
    PLACES,
    Row,
    Truth,
    by_address,
    labels_of,
    nanoseconds,
    table,
    truths,
    written,
)
from tests.kernel.programs import program
from tests.kernel.tampered import command
from tests.recorder import Finished, recording
from tests.targets_run import Target
from tests.toolchains import toolchain

KINDS: Final[tuple[tuple[Kind, ...], ...]] = (("mutex",), ("block", "mutex"))
CLOCK_NS: Final = 50_000  # what Lock and Unlock do before they queue up or wake
HELD_NS: Final = 100_000


@dataclass(frozen=True)
class Run:
    """One run of `contend`, recorded with labels and, by another command, without."""

    truth: dict[int, Truth]
    finished: Finished
    labelled: dict[Kind, Profile]
    bare: dict[Kind, Profile]


def record(path: Path, folder: Path, kinds: tuple[Kind, ...]) -> Run:
    with_labels, without = folder / "labelled", folder / "bare"
    with_labels.mkdir()
    without.mkdir()
    profile = ("--profile", ",".join(kinds))
    with (
        Target.start(path) as target,
        recording(target.pid, with_labels, *profile, "--by-lock", "--lock-labels") as recorder,
        recording(target.pid, without, *profile) as second,
    ):
        truth = truths(target.ask("contend", "["))
        second.interrupt()
        assert second.finish().code == 0
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    found = Run(
        truth, finished, written_profiles(with_labels, kinds), written_profiles(without, kinds)
    )
    for each in (*found.labelled.values(), *found.bare.values()):
        assert losses(each) == []
    return found


def functions(samples: Iterable[Sample]) -> Counter[str]:
    """How often each function locked or released: the innermost one of package main."""
    counts: Counter[str] = Counter()
    for sample in samples:
        names = [frame.function for at in sample.locations for frame in at.frames]
        own = next(name for name in names if name.startswith("main."))
        counts[written(own)] += sample.values[0]
    return counts


def wrong_times(found: Run, rows: dict[int, Row]) -> dict[str, str]:
    """Locks whose delay or mean time held is not the truth, and by how much."""
    wrong = {}
    mutex = by_address(found.labelled["mutex"])
    block = by_address(found.labelled["block"]) if "block" in found.labelled else {}
    for number, (address, truth) in enumerate(found.truth.items()):
        leeway_ns = max(truth.delay_ns / 50, truth.waits.total() * CLOCK_NS)
        for kind, samples in (("mutex", mutex[address]), ("block", block.get(address))):
            if samples is not None:
                delay_ns = total(samples).delay_ns
                if abs(delay_ns - truth.delay_ns) > leeway_ns:
                    wrong[f"{number} {kind} delay"] = f"{delay_ns} ns, in truth {truth.delay_ns}"
        mean_ns = truth.held_ns / truth.holds
        held_ns = nanoseconds(rows[address].held)
        if abs(held_ns - mean_ns) > max(mean_ns / 20, HELD_NS):
            wrong[f"{number} held"] = f"{held_ns} ns, in truth {mean_ns}"
    for kind, bare in found.bare.items():
        wrong |= delay_differences(bare, found.labelled[kind])
    return wrong


@pytest.mark.parametrize("kinds", [*in_full((KINDS[0],)), *KINDS[1:]], ids="+".join)
@pytest.mark.parametrize(("version", "mode"), builds(*BUILDS))
def test_by_lock_shows_names_times_and_holders(
    version: str, mode: str, kinds: tuple[Kind, ...], tmp_path: Path
) -> None:
    path = program("heldlocks", version, mode)

    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        found = record(path, folder, kinds)
        rows = table(found.finished)
        truth = found.truth
        names = {address: truth[address].name for address in truth}
        if mode == "stripped":
            shown = {address: row.name for address, row in rows.items()}
            assert all(fits_stripped(names[address], shown[address]) for address in shown), shown
            names = shown
        assert {a: (row.kind, row.name, row.count) for a, row in rows.items()} == {
            a: (lock.kind, names[a], lock.releases.total()) for a, lock in truth.items()
        }
        assert_table_equals_profile(rows, found)
        for kind in kinds:
            assert_labels(found.labelled[kind], names)
        assert_sums_of_labelled(found, kinds)
        return wrong_times(found, rows)

    agree_once(wrong_in_a_run, tmp_path)


def fits_stripped(name: str, shown: str) -> bool:
    """Whether a table has the name that it can have without symbols: that of the type's field.

    Package variables have their place only. Of two fields it is the one.
    """
    if not re.fullmatch(r"main\.\w+\.\S+|sync\.Once\.m", name) or name == "main.registry.mu":
        return re.fullmatch(r"\.\w+\+0x[0-9a-f]+", shown) is not None
    base, _, fields = name.partition("{")
    return shown in [base + field for field in fields.rstrip("}").split(",")]


def assert_table_equals_profile(rows: dict[int, Row], found: Run) -> None:
    """The table says of each lock what its samples sum up to, and names its first places."""
    mutex = by_address(found.labelled["mutex"])
    assert set(mutex) == set(rows)
    delays_ns = []
    for address, row in rows.items():
        truth, value = found.truth[address], total(mutex[address])
        delays_ns.append(value.delay_ns)
        assert row.count == value.count
        assert row.delay == duration(value.delay_ns)
        assert row.mean == duration(value.delay_ns / value.count)
        for verb, counts in (("released", truth.releases), ("waited for", truth.waits)):
            shown = row.places[verb]
            assert len(shown) == min(len(counts), PLACES)
            assert shown.items() <= counts.items()
            assert row.more[verb] == len(counts) - len(shown)
    assert delays_ns == sorted(delays_ns, reverse=True)


def assert_labels(profile: Profile, names: dict[int, str]) -> None:
    """Each wait for a lock, and each release, has the lock's labels; all else has none."""
    locks = by_address(profile)
    assert set(locks) == set(names)
    for address, samples in locks.items():
        expected = {"lock_address": f"{address:#x}"}
        if names[address]:
            expected["lock"] = names[address]
        assert all(labels_of(sample) == expected for sample in samples)
    for sample in profile.samples:
        inside = {frame.function for at in sample.locations for frame in at.frames}
        is_lock = bool(inside & {"sync.(*Mutex).Lock", "sync.(*Mutex).Unlock"})
        is_lock |= any(name.startswith("sync.(*RWMutex).") for name in inside)
        assert bool(sample.labels) == is_lock
    if profile.kind == "block":
        leaves = {s.locations[0].frames[0].function for s in profile.samples if not s.labels}
        assert "runtime.chanrecv1" in leaves


def assert_sums_of_labelled(found: Run, kinds: tuple[Kind, ...]) -> None:
    """The labels name locks and holders; without them, the profile is that without labels."""
    for kind in kinds:
        locks = by_address(found.labelled[kind])
        for address, truth in found.truth.items():
            expected = truth.releases if kind == "mutex" else truth.waits
            assert functions(locks[address]) == expected
        assert differences(found.bare[kind], found.labelled[kind]) == []
        assert all(not sample.labels for sample in found.bare[kind].samples)


@pytest.mark.parametrize("kinds", [*in_full((KINDS[0],)), *KINDS[1:]], ids="+".join)
@pytest.mark.parametrize("version", versions("1.19", "1.27"))
def test_a_waiting_writer_does_not_hold_its_readers_lock(
    version: str, kinds: tuple[Kind, ...], tmp_path: Path
) -> None:
    """The writer is handed the Mutex inside a RWMutex, and then waits for earlier readers."""

    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        arguments = ("--profile", ",".join(kinds), "--by-lock")
        with (
            Target.start(program("heldlocks", version)) as target,
            recording(target.pid, folder, *arguments) as recorder,
        ):
            truth = json.loads(target.ask("mixed", "{"))
            recorder.interrupt()
            finished = recorder.finish()
        assert finished.code == 0, finished.stderr
        rows = table(finished)
        assert list(rows) == [truth["address"]]
        mean_ns, held = truth["held_ns"] / truth["holds"], rows[truth["address"]].held
        if abs(nanoseconds(held) - mean_ns) <= max(mean_ns / 20, HELD_NS):
            return {}
        return {"held": f"{held}, in truth {mean_ns} ns"}

    agree_once(wrong_in_a_run, tmp_path)


@pytest.mark.full
def test_pprof_reads_the_labels(tmp_path: Path) -> None:
    found = record(program("heldlocks"), tmp_path, ("block", "mutex"))
    for path in (tmp_path / "labelled").iterdir():
        tags = toolchain("1.27").go("tool", "pprof", "-tags", path.name, cwd=path.parent)
        assert set(re.findall(r"^ *(\w+): Total", tags, re.M)) == {"lock", "lock_address"}
        shown = set(re.findall(r"\): (\S+)$", tags, re.M))
        addresses = {f"{address:#x}" for address in found.truth}
        assert shown == addresses | {lock.name for lock in found.truth.values()}


def test_a_failing_lock_name_lookup_loses_no_profile(tmp_path: Path) -> None:
    options = ("--profile", "mutex", "--by-lock", "--lock-labels")
    with (
        Target.start(program("heldlocks")) as target,
        recording(
            target.pid, tmp_path, *options, command=command("fails to name locks")
        ) as recorder,
    ):
        target.ask("contend", "[")
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == ExitCode.FAILURE
    assert "This is a bug: KeyError" in finished.stderr
    assert "Locks of process" not in finished.stdout.decode()
    mutex = written_profiles(tmp_path, ("mutex",))["mutex"]
    assert total(mutex.samples).count > 0
    assert not any(sample.labels for sample in mutex.samples)
    assert any(comment.startswith("names are missing: ") for comment in mutex.comments)


@pytest.mark.full
def test_lock_labels_alone_print_no_table(tmp_path: Path) -> None:
    with (
        Target.start(program("heldlocks")) as target,
        recording(target.pid, tmp_path, "--profile", "mutex", "--lock-labels") as recorder,
    ):
        truth = truths(target.ask("contend", "["))
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    assert "Locks of process" not in finished.stdout.decode()
    assert set(by_address(written_profiles(tmp_path, ("mutex",))["mutex"])) == set(truth)
