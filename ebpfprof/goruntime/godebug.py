"""Settings that change what a Go program writes, from its file and its environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from symbolizer import GoBinary

_MAX_ENVIRONMENT_BYTES: Final = 1 << 21  # the kernel takes a quarter of the stack's limit
_OF_BUILD: Final = "DefaultGODEBUG"
_OF_ENVIRONMENT: Final = b"GODEBUG="
_TRACEBACK_LABELS: Final = "tracebacklabels"


def shows_labels(binary: GoBinary, pid: int) -> bool:
    """Whether tracebacks of this process have labels (GODEBUG=tracebacklabels, Go 1.26 and 1.27).

    The default is the Go version's. The go line of go.mod may set another, which the linker notes
    in the program; the environment at the program's start overrides both. What the program itself
    sets later stays unknown (runtime/runtime1.go, parsedebugvars).
    """
    rules = binary.layout.tracebacks
    value = rules.labels_by_default
    of_build = binary.build_info.settings.get(_OF_BUILD, "") if binary.build_info else ""
    for text in (of_build, *_of_environment(pid)):
        for setting in text.split(","):
            name, _, number = setting.partition("=")
            if name == _TRACEBACK_LABELS and number.lstrip("+-").isdecimal():
                value = int(number) == 1
    return value and bool(rules.labels)


def _of_environment(pid: int) -> Iterator[str]:
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as file:
            variables = file.read(_MAX_ENVIRONMENT_BYTES).split(b"\0")
    except OSError:  # it ended, or the kernel refuses it: what it writes is as by default
        return
    for each in variables:
        if each.startswith(_OF_ENVIRONMENT):
            yield each.removeprefix(_OF_ENVIRONMENT).decode("latin-1")
            return  # as runtime.gogetenv: the first one counts
