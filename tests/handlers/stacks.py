"""Stacks of handlers of real frameworks: of tests/handlers/modules/servers, saved as text.

A file for each framework has the stacks of all goroutines that wait below a handler or were
started there: lines "FUNCTION FILE:LINE", leaf first, with an empty line behind each stack.

python -m tests.handlers.stacks    builds the servers and records all stacks again
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from ebpfprof.profile.model import Frame
from tests.faults.programs import built_module

MODULES: Final = Path(__file__).parent / "modules"
DATA: Final = Path(__file__).parent / "data"
FRAMEWORKS: Final = (
    *("nethttp", "chi", "gorilla", "httprouter", "gin", "echo", "fiber"),
    *("grpc", "connect", "netrpc", "watermill"),
)
_WAITS: Final = ("main.wait", "main.awaitAll")
_FRAME: Final = re.compile(r"(?P<function>\S.*)\(.*\)\n\t.*/(?P<place>[^/\n]+:\d+)(?: \+0x\w+)?")


def saved_stacks(framework: str) -> list[list[Frame]]:
    """The stacks of a framework's server, innermost frame first."""
    return parsed((DATA / f"{framework}.txt").read_text())


def parsed(text: str) -> list[list[Frame]]:
    """The stacks in such a text."""
    return [[_frame(line) for line in stack.splitlines()] for stack in text.split("\n\n") if stack]


def recorded_stacks(framework: str) -> str:
    """The same as text, of a server that runs now. Raises ToolchainError."""
    server = built_module("servers", MODULES)
    command = [str(server), framework, "dump"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    stacks = []
    for traceback in done.stdout.split("\n\n"):
        text = traceback.partition("\ncreated by ")[0]
        frames = [f"{found['function']} {found['place']}" for found in _FRAME.finditer(text)]
        if any(frame.split(" ")[0] in _WAITS for frame in frames):
            stacks.append("".join(f"{frame}\n" for frame in frames))
    return "\n".join(sorted(stacks))


def _frame(line: str) -> Frame:
    function, _, place = line.rpartition(" ")
    file, _, number = place.rpartition(":")
    return Frame(function, file, int(number))


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for each in FRAMEWORKS:
        (DATA / f"{each}.txt").write_text(recorded_stacks(each))
