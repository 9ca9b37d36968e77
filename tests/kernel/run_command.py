"""The command `ebpfprof run` and the target `brief` below it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from ebpfprof.profile.model import Profile
from tests.kernel.programs import program
from tests.recorder import Finished, run
from tests.targets_run import Target

COMMAND = (sys.executable, "-m", "ebpfprof", "run")
BLOCK = ("--profile", "block")
WAITS_OF_INIT = 20
WAITS_OF_MAIN = 30
DEADLINE_S = 60


def run_brief(*arguments: str, folder: Path, options: tuple[str, ...] = BLOCK) -> Finished:
    return run(*options, "--", str(program("brief")), *arguments, folder=folder, command=COMMAND)


def waits(profile: Profile) -> dict[str, int]:
    """How many waits below each function of package main."""
    found: dict[str, int] = {}
    for sample in profile.samples:
        frames = [frame.function for location in sample.locations for frame in location.frames]
        for function in dict.fromkeys(frames):
            found[function] = found.get(function, 0) + sample.values[0]
    return found


def has_waits(profile: Profile, function: str, times: int) -> bool:
    """Whether a function of brief waited as often as it does, or its senders in its place.

    They do where the receiver is preempted just before it waits.
    """
    found = waits(profile)
    return times - found.get("main.receive.func1", 0) <= found[function] <= times


@contextmanager
def running(
    *arguments: str, options: tuple[str, ...] = BLOCK, ready: str | None = "ready "
) -> Iterator[Target]:
    """The command as a target whose input and output are those of the program it runs."""
    with (
        patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2])),
        Target.start(
            Path(sys.executable), *COMMAND[1:], *options, "--", *arguments, ready=ready
        ) as target,
    ):
        yield target
        target.kill()
