"""A target that checks its own results, and what must be true of it after any fault."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.recorder import Recorder, check_profile, end
from tests.targets_run import Target

# Longer than the checker gives itself for a round of each kind of work.
CHECK_S = 600.0
NICE = Path("/usr/bin/nice")
DEADLINE_S = 120.0
ALL_PROFILES = ("--profile", "default", "--by-lock", "--lock-labels", "--open", "--runtime-locks")


@contextmanager
def checker(
    *works: str, minor: str = "1.27", file: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[Target]:
    """Run the checker; after the block all its results must be right, and no probe be left.

    It is load on all processors, but not so much that others starve.
    """
    path = str(file or program("checker", minor))
    with Target.start(NICE, "-n19", path, *works, env=env) as target:
        yield target
        check(target)
        assert not has_probes(target.pid)


def check(target: Target) -> None:
    """Fail unless each kind of work went through one more round, and no result was wrong."""
    assert target.ask("check", "", CHECK_S).startswith("ok "), target.output


def end_without_traceback(recorder: Recorder) -> str:
    """End a recording; it must have no complaint but what it returns."""
    output = end(recorder)
    assert "Traceback" not in output
    return output


def whole_profiles(folder: Path) -> list[Profile]:
    """The profiles in a folder, which must hold nothing else; pprof's readers accept each."""
    found = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        check_profile(data, path.name)
        found.append(pprof.decode(data))
    return found


def what_happened(folder: Path) -> list[Profile]:
    """The same without open waits: there may be none by chance."""
    return [profile for profile in whole_profiles(folder) if profile.kind != "open"]


def await_true(condition: Callable[[], bool], what: str) -> None:
    """Wait until it is so; fails with `what` if that doesn't come."""
    until = monotonic() + DEADLINE_S
    while not condition():
        assert monotonic() < until, what
        sleep(0.005)


def await_ended(pid: int) -> None:
    """Wait until a process has ended, though perhaps nothing has waited for it yet."""
    await_true(lambda: state(pid) in "ZX", f"{pid} does not end")


def stop(pid: int) -> None:
    """Stop a process, all threads of it."""
    os.kill(pid, signal.SIGSTOP)
    await_true(
        lambda: all(state(thread) in "TX" for thread in threads(pid)), f"{pid} does not stop"
    )


def go_on(pid: int) -> None:
    """Let a stopped process continue."""
    os.kill(pid, signal.SIGCONT)


def threads(pid: int) -> list[int]:
    """The threads of a process, by their numbers."""
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def state(thread: int) -> str:
    """The letter that the kernel shows for what a thread does; "X" if it ended meanwhile."""
    try:
        return Path(f"/proc/{thread}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
