"""The output of `ebpfprof agent --check`: the settings in effect, and the processes to record."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.agent.identity.pods import Pods
from ebpfprof.agent.identity.service import Identifier
from ebpfprof.console.text import printable
from ebpfprof.settings.setting import Setting, settings_of
from ebpfprof.settings.values import SizeValue, TimeValue, digits, size_text, time_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ebpfprof.agent.settings import Settings
    from ebpfprof.discovery.processes import GoProcess

_MAX_CELL: Final = 40


def as_toml(settings: Settings) -> str:
    """The settings in effect, as a file that sets the same."""
    lines = _lines(settings)
    if settings.options:
        lines += ["", "[options]"]
        lines += [f"{name} = {_toml(value)}" for name, value in settings.options.items()]
    lines += ["", "[ring]", *_lines(settings.ring)]
    if kubernetes := _lines(settings.kubernetes, only_set=True):
        lines += ["", "[kubernetes]", *kubernetes]
    for sink in settings.sinks:
        lines += ["", "[[sinks]]", *_lines(sink, only_set=True, kind=sink.type)]
    for rule in settings.rules:
        lines += ["", "[[rules]]", *_lines(rule, only_changed=True)]
    return "\n".join(lines) + "\n"


def answers(pods: Pods) -> list[str]:
    """A sentence for each source of pods that responds."""
    for source in pods.sources:
        if not source.counts.answered and not source.problem:
            source.ask()
    return [
        f"{source.name} knows {source.counts.pods} "
        f"{'pod' if source.counts.pods == 1 else 'pods'} here."
        for source in pods.sources
        if not source.problem
    ]


def rows(settings: Settings, processes: Iterable[GoProcess], pods: Pods) -> list[tuple[str, ...]]:
    """A row for each process: pid, name, service, namespace, version, and if it is recorded."""
    identifier = Identifier(settings, pods)
    table = []
    for process in processes:
        verdict = identifier.verdict(process)
        supported = process.supported or (process.is_unknown_version and settings.allow_unknown_go)
        why_not = verdict.why_not or ("" if supported else process.why_not)
        identity = verdict.identity
        cells = (process.name, identity.service, identity.namespace, identity.version)
        recorded = f"no: {why_not}" if why_not else "yes"
        table.append((str(process.pid), *map(_cell, cells), printable(recorded)))
    return table


def _cell(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _MAX_CELL else shown[: _MAX_CELL - 3] + "..."


def _lines(
    table: DataclassInstance, *, only_set: bool = False, only_changed: bool = False, kind: str = ""
) -> list[str]:
    """The lines of a table: `only_set` omits empty texts, `only_changed` defaults but the action.

    `kind` is the type of a sink.
    """
    lines = []
    for one in settings_of(type(table)):
        value = getattr(table, one.name)
        is_omitted = (
            (only_set and value == "")
            or (only_changed and value == one.default and one.name != "action")
            or (one.sinks and kind not in one.sinks)
        )
        if not is_omitted:
            lines.append(f"{one.name} = {value_text(one, value)}")
    return lines


def value_text(setting: Setting, value: Any) -> str:  # noqa: ANN401 - of each setting
    """A value as a file has it."""
    if isinstance(setting.value, TimeValue):
        return f'"{time_text(value)}"'
    if isinstance(setting.value, SizeValue):
        return f'"{size_text(value)}"'
    return _toml(value)


def _toml(value: Any) -> str:  # noqa: ANN401 - of each setting
    """A value as TOML."""
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return digits(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # TOML's escapes are those of JSON, but for pairs of surrogates.
    text = json.dumps(getattr(value, "pattern", None) or str(value), ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
