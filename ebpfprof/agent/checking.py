"""What `ebpfprof agent --check` shows: the settings in effect, and what would be recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.agent.identity.pods import Pods
from ebpfprof.agent.identity.service import Identifier
from ebpfprof.agent.kubernetes_settings import KUBERNETES
from ebpfprof.agent.rules import Rule
from ebpfprof.agent.setting import Setting
from ebpfprof.agent.settings import COMMON, RING, RULE, SINK
from ebpfprof.agent.values import SizeValue, TimeValue, size_text
from ebpfprof.console.text import printable

if TYPE_CHECKING:
    from ebpfprof.agent.settings import Settings
    from ebpfprof.discovery.processes import GoProcess

_MAX_CELL: Final = 40


def as_toml(settings: Settings) -> str:
    """The settings in effect, as a file that says the same."""
    lines = [_line(each, getattr(settings, each.name)) for each in COMMON]
    if settings.options:
        lines += ["", "[options]"]
        lines += [f"{name} = {_toml(value)}" for name, value in settings.options.items()]
    lines += ["", "[ring]"]
    lines += [_line(each, getattr(settings.ring, each.name)) for each in RING]
    asked = [each for each in KUBERNETES if getattr(settings.kubernetes, each.name)]
    if asked:
        lines += ["", "[kubernetes]"]
        lines += [_line(each, getattr(settings.kubernetes, each.name)) for each in asked]
    for sink in settings.sinks:
        lines += ["", "[[sinks]]"]
        of_type = [each for each in SINK if not each.sinks or sink.type in each.sinks]
        shown = [each for each in of_type if getattr(sink, each.name) != ""]
        lines += [_line(each, getattr(sink, each.name)) for each in shown]
    for rule in settings.rules:
        lines += ["", "[[rules]]"]
        changed = {each.name for each in fields(Rule) if getattr(rule, each.name) != each.default}
        shown = [each for each in RULE if each.name in changed | {"action"}]
        lines += [_line(each, getattr(rule, each.name)) for each in shown]
    return "\n".join(lines) + "\n"


def answers(pods: Pods) -> list[str]:
    """A sentence for each source of pods that answers; it is asked if it was not yet."""
    for each in pods.sources:
        if not each.counts.answered and not each.problem:
            each.ask()
    return [
        f"{each.name} knows {each.counts.pods} {'pod' if each.counts.pods == 1 else 'pods'} here."
        for each in pods.sources
        if not each.problem
    ]


def rows(settings: Settings, processes: Iterable[GoProcess], pods: Pods) -> list[tuple[str, ...]]:
    """A row for each process: pid, name, service, namespace, version, and if it is recorded."""
    identifier = Identifier(settings, pods)
    found = []
    for each in processes:
        verdict = identifier.verdict(each)
        supported = each.supported or (each.is_unknown_version and settings.allow_unknown_go)
        why_not = verdict.why_not or ("" if supported else each.why_not)
        identity = verdict.identity
        cells = (each.name, identity.service, identity.namespace, identity.version)
        recorded = f"no: {why_not}" if why_not else "yes"
        found.append((str(each.pid), *map(_cell, cells), printable(recorded)))
    return found


def _cell(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _MAX_CELL else shown[: _MAX_CELL - 3] + "..."


def _line(setting: Setting, value: Any) -> str:  # noqa: ANN401 - of each setting
    return f"{setting.name} = {value_text(setting, value)}"


def value_text(setting: Setting, value: Any) -> str:  # noqa: ANN401 - of each setting
    """A value as a file has it."""
    if isinstance(setting.value, TimeValue):
        return f'"{time_text(value)}"'
    if isinstance(setting.value, SizeValue):
        return f'"{size_text(value)}"'
    return _toml(value)


def time_text(seconds: float) -> str:
    """A length of time as a file has it: 1h, 90s, 7d."""
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit_s and seconds % unit_s == 0:
            return f"{_digits(seconds / unit_s)}{unit}"
    return f"{_digits(seconds)}s"


def _digits(number: float) -> str:
    """All digits of a number, without an exponent, which times can't have."""
    return format(Decimal(repr(number)), "f").removesuffix(".0")


def _toml(value: Any) -> str:  # noqa: ANN401 - of each setting
    """A value as TOML."""
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _digits(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # TOML's escapes are those of JSON, but for pairs of surrogates.
    text = json.dumps(getattr(value, "pattern", None) or str(value), ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in text)
