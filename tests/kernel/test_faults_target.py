"""Faults of the target: it forks, is stopped, runs out of memory, loses its file."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.builds import in_full
from tests.kernel.kernel_state import await_no_probes, has_probes
from tests.kernel.programs import program
from tests.kernel.unharmed import (
    ALL_PROFILES,
    await_true,
    check,
    checker,
    end_without_traceback,
    go_on,
    state,
    stop,
    what_happened,
    whole_profiles,
)
from tests.recorder import recording
from tests.targets_run import Target

MEMORY_CGROUPS = Path("/sys/fs/cgroup/memory")
"""Where the first version of control groups is mounted, if it is."""
HANDED = "handed 45150"


@pytest.mark.alone
@pytest.mark.parametrize("ends", ["while it is recorded", *in_full("after it was recorded")])
def test_a_forked_child_is_right_and_keeps_no_probe(ends: str, tmp_path: Path) -> None:
    """A fork copies the breakpoints, which mean nothing in the child."""
    env = {"GOMAXPROCS": "1", "GOGC": "off"}
    with Target.start(program("forks"), env=env) as target:
        with recording(target.pid, tmp_path, *ALL_PROFILES) as recorder:
            assert target.ask("hand", "handed") == HANDED
            child = int(target.ask("fork", "forked").split()[1])
            await_true(lambda: state(child) == "T", "the child does not stop")
            assert has_probes(target.pid)
            if ends == "while it is recorded":
                join(target, child)
            assert target.ask("hand", "handed") == HANDED
            end_without_traceback(recorder)
        assert not has_probes(target.pid)
        if ends == "after it was recorded":
            assert not has_probes(child)
            join(target, child)
        assert target.ask("hand", "handed") == HANDED
    block, *_ = whole_profiles(tmp_path)
    # Each number that is handed on makes one of the two wait. What the child did is not counted.
    waits = sum(sample.values[0] for sample in block.samples)
    assert abs(waits - 2 * 300) < 100


def join(target: Target, child: int) -> None:
    """Let the child go on to its end, with right sums."""
    go_on(child)
    assert target.ask("join", "joined") == "joined 0"


def test_processes_that_the_target_starts_are_right(tmp_path: Path) -> None:
    """Go starts them by vfork: until its exec, the child runs in the target's own memory."""
    with checker("spawn") as target:
        with recording(target.pid, tmp_path, *ALL_PROFILES) as recorder:
            check(target)
            end_without_traceback(recorder)
        check(target)
    assert len(whole_profiles(tmp_path)) == 4


@pytest.mark.full
def test_a_stopped_and_continued_target_is_still_recorded(tmp_path: Path) -> None:
    with checker() as target, recording(target.pid, tmp_path, *ALL_PROFILES) as recorder:
        stop(target.pid)
        assert has_probes(target.pid)
        go_on(target.pid)
        check(target)
        end_without_traceback(recorder)
    assert all(profile.samples for profile in what_happened(tmp_path))


def test_probes_are_attached_to_and_detached_from_a_stopped_target(tmp_path: Path) -> None:
    with checker() as target:
        stop(target.pid)
        try:
            with recording(target.pid, tmp_path, *ALL_PROFILES) as recorder:
                assert has_probes(target.pid)
                end_without_traceback(recorder)
            assert not has_probes(target.pid)
            assert state(target.pid) == "T"
        finally:
            go_on(target.pid)
    assert len(whole_profiles(tmp_path)) == 4
    assert not any(profile.samples for profile in what_happened(tmp_path))


@pytest.mark.full
def test_a_stopped_target_continues_after_its_profiler_was_killed(tmp_path: Path) -> None:
    with checker() as target, recording(target.pid, tmp_path, *ALL_PROFILES) as recorder:
        stop(target.pid)
        try:
            recorder.kill()
            assert recorder.finish().code == -signal.SIGKILL
            await_no_probes(target.pid)
        finally:
            go_on(target.pid)
    assert os.listdir(tmp_path) == []


@pytest.mark.full
def test_a_target_out_of_address_space_is_written(tmp_path: Path) -> None:
    """Go's runtime ends a program that gets no more memory, which is an end like any other."""
    target = Target.start(program("checker"), "hoard")
    try:
        with recording(target.pid, tmp_path, *ALL_PROFILES) as recorder:
            check(target)
            used = address_space_bytes(target.pid)
            resource.prlimit(target.pid, resource.RLIMIT_AS, (used, used))
            target.say("hoard")
            assert target.wait() == 2
            assert "memory" in target.errors
            finished = recorder.finish()
    finally:
        target.kill()
    written_because_it_ended(target.pid, finished.code, finished.stderr, tmp_path)


def test_a_target_killed_for_want_of_memory_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with memory_cgroup(tmp_path / "groups") as group:
        target = Target.start(program("checker"), "hoard")
        try:
            with recording(target.pid, out, *ALL_PROFILES) as recorder:
                check(target)
                group.take(target.pid)
                target.say("hoard")
                assert target.wait() == -signal.SIGKILL
                finished = recorder.finish()
            assert group.kills() >= 1
        finally:
            target.kill()
    written_because_it_ended(target.pid, finished.code, finished.stderr, out)


def written_because_it_ended(pid: int, code: int, said: str, folder: Path) -> None:
    assert code == 0, said
    assert f"\nebpfprof: process {pid} ended; the profile has everything until then.\n" in said
    assert "Traceback" not in said
    profiles = whole_profiles(folder)
    assert len(profiles) == 4
    assert all(f"ended early: process {pid} ended" in profile.comments for profile in profiles)
    block, *_ = profiles
    assert block.samples


def address_space_bytes(pid: int) -> int:
    """How much of its address space a process has in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


class MemoryCgroup:
    """A control group, of either version, that bounds the memory of its processes."""

    MORE_BYTES = 16 << 20

    def __init__(self, folder: Path, limit: str, events: str) -> None:
        self._folder, self._limit, self._events = folder, limit, events

    def entering(self, limit_bytes: int) -> tuple[str, ...]:
        """What to put before a command, so that it has that much memory at most."""
        (self._folder / self._limit).write_text(str(limit_bytes))
        script = 'echo $$ > "$1" && shift && exec "$@"'
        return ("/bin/sh", "-c", script, "sh", str(self._folder / "cgroup.procs"))

    def take(self, pid: int) -> None:
        """Put a process into it, with 16 MiB more than it needs now: that is not counted."""
        (self._folder / self._limit).write_text(str(self.MORE_BYTES))
        (self._folder / "cgroup.procs").write_text(str(pid))

    def kills(self) -> int:
        """How many of its processes the kernel has killed."""
        words = (self._folder / self._events).read_text().split()
        return int(words[words.index("oom_kill") + 1])


@contextmanager
def memory_cgroup(mountpoint: Path) -> Iterator[MemoryCgroup]:
    """A control group of our own; where no hierarchy is mounted, at `mountpoint`."""
    name = f"ebpfprof-test-{os.getpid()}"
    with ExitStack() as held:
        if MEMORY_CGROUPS.is_dir():
            folder = MEMORY_CGROUPS / name
            group = MemoryCgroup(folder, "memory.limit_in_bytes", "memory.oom_control")
        else:
            root = Path("/sys/fs/cgroup")
            if not (root / "cgroup.controllers").exists():
                root = mountpoint
                root.mkdir()
                subprocess.run(["mount", "-t", "cgroup2", "none", root], check=True)
                held.callback(lambda: subprocess.run(["umount", mountpoint], check=True))
            (root / "cgroup.subtree_control").write_text("+memory")
            folder = root / name
            group = MemoryCgroup(folder, "memory.max", "memory.events")
        folder.mkdir()
        held.callback(folder.rmdir)
        yield group


@pytest.mark.parametrize("how", ["replaced", *in_full("deleted")])
def test_a_target_is_recorded_while_its_file_is_replaced_or_deleted(
    how: str, tmp_path: Path
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    out.mkdir()
    file = Path(shutil.copy(program("checker"), tmp_path / "checker"))
    shutil.copy(program("nopprof", "1.21"), other)
    with checker("spawn", file=file) as target:
        with recording(target.pid, out, *ALL_PROFILES) as recorder:
            if how == "replaced":
                os.replace(other, file)
                # What runs from the new file has nothing of ours.
                with Target.start(file) as new:
                    assert not has_probes(new.pid)
                    new.ask("go", "done")
            else:
                file.unlink()
            check(target)
            end_without_traceback(recorder)
        assert not has_probes(target.pid)
    profiles = whole_profiles(out)
    assert len(profiles) == 4
    assert all(profile.samples for profile in what_happened(out))
    names = {
        frame.function
        for sample in profiles[0].samples
        for location in sample.locations
        for frame in location.frames
    }
    assert "main.passThroughChannels" in names


def test_another_process_of_the_program_has_no_probe(tmp_path: Path) -> None:
    """Breakpoints must be private to one process, though others map the same pages of the file."""
    with (
        checker() as target,
        checker() as other,
        recording(target.pid, tmp_path, *ALL_PROFILES) as recorder,
    ):
        assert has_probes(target.pid)
        assert not has_probes(other.pid)
        late = subprocess.run([program("checker"), "answer", "100"], capture_output=True)
        assert late.stdout == b"5050\n"
        end_without_traceback(recorder)
