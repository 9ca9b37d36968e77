"""The agent's file, /etc/ebpfprof/agent.toml: read as root, and checked key by key."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ebpfprof.agent.identity import requirements as of_kubernetes
from ebpfprof.agent.kubernetes_settings import KUBERNETES, KubernetesSettings
from ebpfprof.agent.rules import Rule
from ebpfprof.agent.setting import Setting
from ebpfprof.agent.settings import (
    COMMON,
    QUEUE_AGE_S,
    QUEUE_AGES_S,
    RING,
    RULE,
    SINK,
    Settings,
    SinkSettings,
    default_ring,
)
from ebpfprof.agent.sinks.requirements import SettingError, require_usable
from ebpfprof.agent.toml_places import line_of
from ebpfprof.agent.values import LABEL_NAME, NumberValue, SwitchValue, Value
from ebpfprof.console.quantities import similar
from ebpfprof.console.text import printable
from ebpfprof.errors import BadConfig
from ebpfprof.profilers.registry import kind_named, options_of_kinds

DEFAULT_PATH: Final = "/etc/ebpfprof/agent.toml"
_MAX_BYTES: Final = 64 << 10
_TABLES: Final = ("options", "ring", "kubernetes")
_LISTS: Final = ("sinks", "rules")
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
"""Of each action, the keys that a rule must have."""
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _File:
    shown: str
    text: str

    def wrong(self, path: Path, sentence: str) -> BadConfig:
        return BadConfig(f"{self.shown}:{line_of(self.text, path)}: {sentence}")


def load(path: str | None) -> Settings:
    """The settings of a file; None: of the usual one, and all defaults if there is none.

    Raises BadConfig.
    """
    usual = os.path.join(os.environ.get("CONFIGURATION_DIRECTORY", ""), "agent.toml")
    where = path or (usual if os.path.isabs(usual) else DEFAULT_PATH)
    shown = printable(where)
    try:
        text = _contents(where, shown)
    except FileNotFoundError as error:
        if path is None:
            return Settings(ring=default_ring())
        raise BadConfig(f"There is no file {shown}: write one, or leave out --config.") from error
    except OSError as error:
        raise BadConfig(f"{shown} can't be read: {error.strerror}.") from error
    return parsed(text, shown)


def parsed(text: str, shown: str) -> Settings:
    """The settings that the text of a file holds; `shown` is what messages call it.

    Raises BadConfig, whose message has the line.
    """
    try:
        tables = tomllib.loads(text)
    except RecursionError as error:
        raise BadConfig(f"{shown} is nested too deeply.") from error
    except ValueError as error:
        raise _no_toml(shown, text, error) from error
    return _settings(_File(shown, text), tables)


def _contents(path: str, shown: str) -> str:
    """The text of the file. Raises OSError, and BadConfig if it may not be trusted."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise BadConfig(f"{shown} is not a regular file.")
        if status.st_uid not in (0, os.geteuid()):
            raise BadConfig(
                f"{shown} belongs to neither root nor the user who runs the agent: change its "
                "owner."
            )
        if status.st_mode & stat.S_IWOTH:
            raise BadConfig(f"{shown} can be changed by all users: chmod o-w it.")
        data = opened.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise BadConfig(f"{shown} is longer than {_MAX_BYTES >> 10} KiB: shorten it.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadConfig(f"{shown}:{line}: This is no UTF-8.") from error


def _no_toml(shown: str, text: str, error: ValueError) -> BadConfig:
    at = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
    reason = str(error)[: at.start()] if at else str(error)
    where = f"{shown}:{at[1] or len(text.splitlines())}" if at else shown
    if reason.startswith("Cannot overwrite"):
        return BadConfig(f"{where}: This key stands here a second time.")
    if reason.startswith(("Cannot declare", "Cannot mutate")):
        return BadConfig(f"{where}: This table stands here a second time.")
    return BadConfig(f"{where}: This is no TOML: {printable(reason)}.")


def _settings(file: _File, tables: dict[str, Any]) -> Settings:
    known = [*(each.name for each in COMMON), *_TABLES, *_LISTS]
    _require_known(file, tables, known, (), "setting")
    plain = {name: each for name, each in tables.items() if name not in (*_TABLES, *_LISTS)}
    values = _read(file, plain, COMMON, ())
    ring = _read(file, _table(file, tables, "ring"), RING, ("ring",), "setting of [ring]")
    root = Settings(**values).host_root
    kubernetes = _kubernetes(file, _table(file, tables, "kubernetes"), root)
    sinks = [_sink(file, each, ("sinks", i)) for i, each in _list(file, tables, "sinks")]
    names = [each.name for each in sinks]
    for index, name in enumerate(names):
        if name in names[:index] or name == "ring":
            taken = "the ring" if name == "ring" else "another sink"
            raise file.wrong(("sinks", index), f"This sink is called {name!r}, as {taken} is.")
    rules = [_rule(file, each, ("rules", i)) for i, each in _list(file, tables, "rules")]
    options = _options(file, _table(file, tables, "options"))
    base = default_ring()
    return Settings(
        **values,
        options=options,
        ring=type(base)(**{**{"path": base.path}, **ring}),
        kubernetes=kubernetes,
        sinks=tuple(sinks),
        rules=tuple(rules),
    )


def _read(
    file: _File,
    table: Mapping[str, Any],
    settings: Sequence[Setting],
    path: Path,
    what: str = "setting",
) -> dict[str, Any]:
    """The values of a table's keys by name. Raises BadConfig."""
    _require_known(file, table, [each.name for each in settings], path, what)
    by_name = {each.name: each for each in settings}
    return {
        name: _value(file, by_name[name].value, value, (*path, name))
        for name, value in table.items()
    }


def _value(file: _File, kind: Value, value: object, path: Path) -> Any:  # noqa: ANN401 - of each type
    try:
        return kind.read(value)
    except ValueError as error:
        ending = "" if str(error).endswith("?") else "."
        raise file.wrong(path, f"{path[-1]} {error}{ending}") from error


def _require_known(
    file: _File, table: Mapping[str, Any], known: Iterable[str], path: Path, what: str
) -> None:
    names = list(known)
    for name in table:
        if name not in names:
            hint = similar(name.replace("-", "_"), names)
            raise file.wrong((*path, name), f"There is no {what} '{printable(name)}'.{hint}")


def _table(file: _File, tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = tables.get(name, {})
    if not isinstance(found, dict):
        raise file.wrong((name,), f"{name} must be a table, [{name}].")
    return found


def _list(
    file: _File, tables: Mapping[str, Any], name: str
) -> Iterable[tuple[int, dict[str, Any]]]:
    found = tables.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise file.wrong((name,), f"{name} must be tables, each below its own [[{name}]].")
    return enumerate(found)


def _kubernetes(file: _File, table: Mapping[str, Any], root: str) -> KubernetesSettings:
    path = ("kubernetes",)
    found = KubernetesSettings(**_read(file, table, KUBERNETES, path, "setting of [kubernetes]"))
    try:
        of_kubernetes.require_usable(found, root)
    except SettingError as error:
        raise file.wrong((*path, error.name), str(error)) from None
    return found


def _sink(file: _File, table: Mapping[str, Any], path: Path) -> SinkSettings:
    values = _read(file, table, SINK, path, "setting of a sink")
    if "type" not in values:
        raise file.wrong(path, "This sink has no type.")
    kind = values["type"]
    for each in SINK:
        is_of_it = not each.sinks or kind in each.sinks
        if each.name in values and not is_of_it:
            raise file.wrong((*path, each.name), f"A sink of the type {kind} has no {each.name}.")
        if each.is_needed and is_of_it and each.name not in values:
            raise file.wrong(path, f"This sink has no {each.name}.")
    age_s = QUEUE_AGES_S.get(kind, QUEUE_AGE_S)
    found = SinkSettings(**{"name": kind, "queue_age": age_s, **values})
    try:
        require_usable(found)
    except SettingError as error:
        raise file.wrong((*path, error.name), str(error)) from None
    return found


def _rule(file: _File, table: Mapping[str, Any], path: Path) -> Rule:
    values = _read(file, table, RULE, path, "key of a rule")
    rule = Rule(**values)
    for name in _NEEDS[rule.action]:
        if name not in values or values[name] in ("", ()):
            raise file.wrong(path, f"A rule with the action {rule.action} needs a {name}.")
    if rule.target and "$" not in rule.target and not LABEL_NAME.fullmatch(rule.target):
        why = f"target must be a name of a label, not {rule.target!r}."
        raise file.wrong((*path, "target"), why)
    return rule


def _options(file: _File, table: Mapping[str, Any]) -> dict[str, int]:
    declared = options_of_kinds()
    _require_known(file, table, declared, ("options",), "recording option")
    found: dict[str, int] = {}
    for name, value in table.items():
        option, kind = declared[name]
        of_bool = isinstance(option.default, bool)
        wanted: Value = SwitchValue() if of_bool else NumberValue(option.least, option.most)
        found[name] = _value(file, wanted, value, ("options", name))
        if option.chooses_events:
            raise file.wrong(
                ("options", name),
                f"{name} and max_overhead both say which {kind_named(kind.name).events} to record: "
                "leave it out.",
            )
    return found
