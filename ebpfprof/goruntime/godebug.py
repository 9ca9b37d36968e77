"""Settings that change what a Go program writes, from its file and its environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ebpfprof.system.first_thread import reading_pid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from symbolizer import GoBinary

_MAX_ENVIRONMENT_BYTES: Final = 1 << 21  # the kernel takes a quarter of the stack's limit
_OF_BUILD: Final = "DefaultGODEBUG"
_OF_ENVIRONMENT: Final = b"GODEBUG="
_TRACEBACK_LABELS: Final = "tracebacklabels"
_MEMORY_RATE: Final = "memprofilerate"


def shows_labels(binary: GoBinary, pid: int) -> bool:
    """Whether tracebacks of this process have labels (GODEBUG=tracebacklabels, Go 1.26 and 1.27).

    The default is the Go version's. The go line of go.mod may set another, which the linker notes
    in the program; the environment at the program's start overrides both. What the program itself
    sets later stays unknown (runtime/runtime1.go, parsedebugvars).
    """
    rules = binary.layout.tracebacks
    value = _number(_TRACEBACK_LABELS, binary, pid)
    return bool(rules.labels) and (rules.labels_by_default if value is None else value == 1)


def memory_profile_rate(binary: GoBinary, pid: int) -> int | None:
    """What runtime.MemProfileRate is set to at the program's start, in bytes; None: the default."""
    return _number(_MEMORY_RATE, binary, pid)


def _number(wanted: str, binary: GoBinary, pid: int) -> int | None:
    value = None
    of_build = binary.build_info.settings.get(_OF_BUILD, "") if binary.build_info else ""
    for text in (of_build, *_of_environment(pid)):
        for setting in text.split(","):
            name, _, number = setting.partition("=")
            if name == wanted and number.lstrip("+-").isdecimal():
                value = int(number)
    return value


def _of_environment(pid: int) -> Iterator[str]:
    try:
        with Path(f"/proc/{reading_pid(pid)}/environ").open("rb") as file:
            variables = file.read(_MAX_ENVIRONMENT_BYTES).split(b"\0")
    except OSError:  # it ended, or the kernel refuses it: what it writes is as by default
        return
    for each in variables:
        if each.startswith(_OF_ENVIRONMENT):
            yield each.removeprefix(_OF_ENVIRONMENT).decode("latin-1")
            return  # as runtime.gogetenv: the first one counts
