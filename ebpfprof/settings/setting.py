"""A setting: its name, type, default and help, declared once.

The declaration is all that the command line, the environment, the files, `agent --check`, the
docs and the Helm chart know of it. Options of the command line alone are click's own
declarations, with a type of ebpfprof.settings.values.

msgspec and tomlkit would not replace this: Debian 12 has no msgspec, and tomlkit keeps no line
numbers.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Final

from ebpfprof.settings.values import Value

_KEY: Final = "setting"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: `help` is a sentence.

    `flags` are its names on the command line ("--hz", "--kernel/--no-kernel"), from which those of
    the variable and of the key in config.toml follow; "" if it is in agent.toml alone. It can't be
    combined with the setting that it `excludes`.
    """

    name: str
    value: Value
    default: Any
    help: str
    flags: str = ""
    metavar: str = ""
    excludes: str = ""
    is_live: bool = True
    """Whether SIGHUP changes it in a running agent."""
    is_needed: bool = False
    in_chart: bool = True
    """Whether it is a value of the Helm chart; if not, the chart sets it itself."""
    sinks: tuple[str, ...] = ()
    """The types of sinks that have it; () for all."""


def setting(value: Value, default: Any, help: str, **more: Any) -> Any:  # noqa: ANN401 - a field of any type
    """A field of a dataclass that holds settings; its name is that of the setting.

    `more` are fields of Setting. With default=None, the dataclass has no default.
    """
    return shared(Setting("", value, default, help, **more))


def shared(declared: Setting) -> Any:  # noqa: ANN401 - a field of any type
    """A field for a setting that is declared elsewhere."""
    default = MISSING if declared.default is None else declared.default
    return field(default=default, metadata={_KEY: declared})


def settings_of(table: type) -> tuple[Setting, ...]:
    """The settings that a dataclass declares."""
    return tuple(
        replace(one.metadata[_KEY], name=one.name) for one in fields(table) if _KEY in one.metadata
    )
