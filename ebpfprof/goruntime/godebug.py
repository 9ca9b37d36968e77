"""Settings that change what a Go program writes, from its file and its environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.process.process import Target
    from symbolizer import GoBinary

_OF_BUILD: Final = "DefaultGODEBUG"
_OF_ENVIRONMENT: Final = b"GODEBUG="
_TRACEBACK_LABELS: Final = "tracebacklabels"
_MEMORY_RATE: Final = "memprofilerate"


def shows_labels(binary: GoBinary, target: Target) -> bool:
    """Whether tracebacks of this process have labels (GODEBUG=tracebacklabels, Go 1.26 and 1.27).

    The default is the Go version's. The go line of go.mod may set another, which the linker notes
    in the program; the environment at the program's start overrides both. What the program itself
    sets later stays unknown (runtime/runtime1.go, parsedebugvars).
    """
    rules = binary.layout.tracebacks
    value = _number(_TRACEBACK_LABELS, binary, target)
    return bool(rules.labels) and (rules.labels_by_default if value is None else value == 1)


def memory_profile_rate(binary: GoBinary, target: Target) -> int | None:
    """What runtime.MemProfileRate is set to at the program's start, in bytes; None: the default."""
    return _number(_MEMORY_RATE, binary, target)


def debug_settings(target: Target) -> tuple[tuple[str, str], ...]:
    """The settings of GODEBUG in the environment at the program's start: names and values."""
    pairs = (
        setting.partition("=") for text in _of_environment(target) for setting in text.split(",")
    )
    return tuple((name, value) for name, _, value in pairs if name)


def _number(wanted: str, binary: GoBinary, target: Target) -> int | None:
    value = None
    of_build = binary.build_info.settings.get(_OF_BUILD, "") if binary.build_info else ""
    for text in (of_build, *_of_environment(target)):
        for setting in text.split(","):
            name, _, number = setting.partition("=")
            if name == wanted and number.lstrip("+-").isdecimal():
                value = int(number)
    return value


def _of_environment(target: Target) -> Iterator[str]:
    for variable in target.environment():
        if variable.startswith(_OF_ENVIRONMENT):
            yield variable.removeprefix(_OF_ENVIRONMENT).decode("latin-1")
            return  # as runtime.gogetenv: the first one counts
