"""The agent's file, /etc/ebpfprof/agent.toml: read as root, and checked key by key."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ebpfprof.agent.identity import requirements as of_kubernetes
from ebpfprof.agent.kubernetes_settings import KubernetesSettings
from ebpfprof.agent.rules import Rule
from ebpfprof.agent.settings import (
    QUEUE_AGE_S,
    QUEUE_AGES_S,
    RingSettings,
    Settings,
    SinkSettings,
    default_ring,
)
from ebpfprof.agent.sinks.requirements import SettingError, require_usable
from ebpfprof.console.text import printable
from ebpfprof.errors import BadConfig
from ebpfprof.profilers.registry import options_of_kinds
from ebpfprof.settings import toml_file
from ebpfprof.settings.setting import Setting, settings_of
from ebpfprof.settings.toml_file import Path, TomlFile, read_trusted
from ebpfprof.settings.values import LABEL_NAME

DEFAULT_PATH: Final = "/etc/ebpfprof/agent.toml"
_TABLES: Final = ("options", "ring", "kubernetes", "sinks", "rules")
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "replace": ("target",),
    "lowercase": ("source", "target"),
    "uppercase": ("source", "target"),
    "keep": ("source", "regex"),
    "drop": ("source", "regex"),
    "labelmap": ("regex",),
    "labeldrop": ("regex",),
    "labelkeep": ("regex",),
}
"""By action: the keys that a rule must have."""


def load(path: str | None) -> Settings:
    """The settings of a file; None: of the default file, if it exists.

    Raises BadConfig.
    """
    usual = os.path.join(os.environ.get("CONFIGURATION_DIRECTORY", ""), "agent.toml")
    where = path or (usual if os.path.isabs(usual) else DEFAULT_PATH)
    shown = printable(where)
    try:
        fd = os.open(where, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        text = read_trusted(fd, shown, os.geteuid())
    except FileNotFoundError as error:
        if path is None:
            return Settings(ring=default_ring())
        raise BadConfig(f"There is no file {shown}: create it, or omit --config.") from error
    except OSError as error:
        raise BadConfig(f"{shown} can't be read: {error.strerror}.") from error
    return parsed(text, shown)


def parsed(text: str, shown: str) -> Settings:
    """The settings in the text of a file; `shown` is its name in messages.

    Raises BadConfig, whose message has the line.
    """
    file = toml_file.parsed(text, shown)
    common = settings_of(Settings)
    plain = {name: value for name, value in file.tables.items() if name not in _TABLES}
    file.require_known(plain, [*(one.name for one in common), *_TABLES], (), "There is no setting")
    values = _read(file, plain, common, (), "There is no setting")
    ring = _read(
        file, file.table("ring"), settings_of(RingSettings), ("ring",), "[ring] has no setting"
    )
    base = default_ring()
    return Settings(
        **values,
        options=_options(file),
        ring=RingSettings(**{"path": base.path, **ring}),
        kubernetes=_kubernetes(file, Settings(**values).host_root),
        sinks=_sinks(file),
        rules=tuple(_rule(file, table, path) for path, table in file.list_of_tables("rules")),
    )


def _read(
    file: TomlFile, table: Mapping[str, Any], settings: Sequence[Setting], path: Path, what: str
) -> dict[str, Any]:
    """The values of a table's keys by name. Raises BadConfig."""
    by_name = {one.name: one for one in settings}
    file.require_known(table, by_name, path, what)
    return {
        name: file.read(by_name[name].value, value, (*path, name)) for name, value in table.items()
    }


def _kubernetes(file: TomlFile, root: str) -> KubernetesSettings:
    path, known = ("kubernetes",), settings_of(KubernetesSettings)
    values = _read(file, file.table("kubernetes"), known, path, "[kubernetes] has no setting")
    settings = KubernetesSettings(**values)
    try:
        of_kubernetes.require_usable(settings, root)
    except SettingError as error:
        raise file.wrong((*path, error.name), str(error)) from None
    return settings


def _sinks(file: TomlFile) -> tuple[SinkSettings, ...]:
    sinks: dict[str, SinkSettings] = {}
    for path, table in file.list_of_tables("sinks"):
        sink = _sink(file, table, path)
        if sink.name in sinks or sink.name == "ring":
            taken = "the ring" if sink.name == "ring" else "another sink"
            raise file.wrong(path, f"The name {sink.name!r} belongs to {taken}: set another name.")
        sinks[sink.name] = sink
    return tuple(sinks.values())


def _sink(file: TomlFile, table: Mapping[str, Any], path: Path) -> SinkSettings:
    known = settings_of(SinkSettings)
    values = _read(file, table, known, path, "A sink has no setting")
    if "type" not in values:
        raise file.wrong(path, "This sink has no type.")
    kind = values["type"]
    for one in known:
        applies = not one.sinks or kind in one.sinks
        if one.name in values and not applies:
            raise file.wrong((*path, one.name), f"A sink of the type {kind} has no {one.name}.")
        if one.is_needed and applies and one.name not in values:
            raise file.wrong(path, f"This sink has no {one.name}.")
    age_s = QUEUE_AGES_S.get(kind, QUEUE_AGE_S)
    settings = SinkSettings(**{"name": kind, "queue_age": age_s, **values})
    try:
        require_usable(settings)
    except SettingError as error:
        raise file.wrong((*path, error.name), str(error)) from None
    return settings


def _rule(file: TomlFile, table: Mapping[str, Any], path: Path) -> Rule:
    values = _read(file, table, settings_of(Rule), path, "A rule has no key")
    rule = Rule(**values)
    for name in _NEEDS[rule.action]:
        if name not in values or values[name] in ("", ()):
            raise file.wrong(path, f"A rule with the action {rule.action} needs a {name}.")
    if rule.target and "$" not in rule.target and not LABEL_NAME.fullmatch(rule.target):
        why = f"target must be a name of a label, not {rule.target!r}."
        raise file.wrong((*path, "target"), why)
    return rule


def _options(file: TomlFile) -> dict[str, int]:
    declared = options_of_kinds()
    table = file.table("options")
    known = [option for option, _ in declared.values()]
    values = _read(file, table, known, ("options",), "There is no recording option")
    for name in values:
        option, kind = declared[name]
        if option.excludes:
            raise file.wrong(
                ("options", name),
                f"{name} and {option.excludes} both say which {kind.events} to record: omit "
                f"{name}.",
            )
    return values
