"""The page of the agent's settings, docs/commands/agent-settings.md, from their declarations."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ebpfprof.agent.checking import value_text
from ebpfprof.agent.identity.service import META_LABELS
from ebpfprof.agent.kubernetes_settings import KubernetesSettings
from ebpfprof.agent.rules import Rule
from ebpfprof.agent.settings import RingSettings, Settings, SinkSettings
from ebpfprof.profilers.registry import options_of_kinds
from ebpfprof.settings.setting import settings_of

PAGE: Final = Path("docs/commands/agent-settings.md")
_TOP: Final = """\
# The agent's settings

The keys of `/etc/ebpfprof/agent.toml`, or of the file given with `--config`. [The
agent](../agent.md) explains how it works. A wrong key ends `ebpfprof agent` with exit code 2 and
a message with its line. `ebpfprof agent --check` prints all settings in effect. Times are written
as `"1m30s"`, `"7d"` or a number of seconds, sizes as `"512MiB"` or a number of bytes. SIGHUP
changes settings marked "live" in a running agent; the others need a restart.
"""


def settings_page() -> str:
    """The page."""
    parts = [
        _TOP,
        _table("At the top of the file", Settings),
        _table("`[ring]`: the local ring (live)", RingSettings),
        _table("`[kubernetes]`: sources of pod metadata (live)", KubernetesSettings),
        _table("`[[sinks]]`: any number of sinks (live)", SinkSettings),
        _table("`[[rules]]`: in order (live)", Rule),
        _labels(),
        _options(),
    ]
    return "\n".join(parts)


def _table(heading: str, table: type) -> str:
    has_live = table is Settings
    lines = [
        f"## {heading}",
        "",
        f"| key | takes | default |{' live |' if has_live else ''} what |",
    ]
    lines.append("|---|---|---|" + ("---|" if has_live else "") + "---|")
    for one in settings_of(table):
        default = "" if one.is_needed else f"`{value_text(one, one.default)}`"
        live = f" {'yes' if one.is_live else 'no'} |" if has_live else ""
        wants = one.value.wants.replace("|", "\\|")
        lines.append(f"| `{one.name}` | {wants} | {default} |{live} {one.help} |")
    return "\n".join([*lines, ""])


def _labels() -> str:
    lines = ["## Labels that rules see", "", "| label | what |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in META_LABELS.items()]
    lines += [
        "",
        "Rules also see the labels that sinks get: `service`, `namespace`, `version`, `node`, "
        "`pod`, `container`, and labels that other rules set. There is no label with a pid.",
        "",
    ]
    return "\n".join(lines)


def _options() -> str:
    lines = [
        "## `[options]`: options of single kinds",
        "",
        "The options of `ebpfprof attach`, without the dashes.",
        "",
        "| key | kind | default | what |",
        "|---|---|---|---|",
    ]
    for name, (option, kind) in options_of_kinds().items():
        if not option.excludes:
            default = str(option.default).lower()
            lines.append(f"| `{name}` | {kind.name} | `{default}` | {option.help} |")
    return "\n".join([*lines, ""])
