"""What a process holds open of another one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Held(NamedTuple):
    """How many descriptors stand for a process, and for its memory."""

    pidfds: int = 0
    memories: int = 0


def held_of(pid: int, by: int | None = None) -> Held:
    """What process `by` (this one, if None) holds open of process `pid`."""
    folder = Path(f"/proc/{os.getpid() if by is None else by}")
    pidfds = memories = 0
    for entry in list((folder / "fd").iterdir()):
        with suppress(FileNotFoundError):  # it was closed since, as that of this listing
            memories += os.readlink(entry) == f"/proc/{pid}/mem"
            pidfds += f"\nPid:\t{pid}\n" in (folder / "fdinfo" / entry.name).read_text()
    return Held(pidfds, memories)
