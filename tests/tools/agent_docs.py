"""The page of the agent's settings, made of their definitions: docs/commands/agent-settings.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ebpfprof.agent.checking import value_text
from ebpfprof.agent.identity.service import META_LABELS
from ebpfprof.agent.kubernetes_settings import KUBERNETES
from ebpfprof.agent.setting import Setting
from ebpfprof.agent.settings import COMMON, RING, RULE, SINK
from ebpfprof.profilers.registry import options_of_kinds

PAGE: Final = Path("docs/commands/agent-settings.md")
_TOP: Final = """\
# The agent's settings

The keys of `/etc/ebpfprof/agent.toml`, or of the file behind `--config`. [The agent](../agent.md)
says how it works. A key that is wrong ends `ebpfprof agent` with exit code 2 and its line;
`ebpfprof agent --check` prints all settings in effect. Times are written as `"1m30s"`, `"7d"` or a
number of seconds, sizes as `"512MiB"` or a number of bytes. SIGHUP changes the settings marked
"live" in an agent that runs; the others count when it is started again.
"""


def settings_page() -> str:
    """The page."""
    parts = [
        _TOP,
        _table("At the top of the file", COMMON),
        _table("`[ring]`, the local ring (live)", RING),
        _table("`[kubernetes]`, who is asked about pods (live)", KUBERNETES),
        _table("`[[sinks]]`, any number of them (live)", SINK),
        _table("`[[rules]]`, in order (live)", RULE),
        _labels(),
        _options(),
    ]
    return "\n".join(parts)


def _table(heading: str, settings: Sequence[Setting]) -> str:
    has_live = settings is COMMON
    lines = [
        f"## {heading}",
        "",
        f"| key | takes | default |{' live |' if has_live else ''} what |",
    ]
    lines.append("|---|---|---|" + ("---|" if has_live else "") + "---|")
    for each in settings:
        default = "" if each.is_needed else f"`{value_text(each, each.default)}`"
        live = f" {'yes' if each.is_live else 'no'} |" if has_live else ""
        wants = each.value.wants.replace("|", "\\|")
        lines.append(f"| `{each.name}` | {wants} | {default} |{live} {each.help} |")
    return "\n".join([*lines, ""])


def _labels() -> str:
    lines = ["## Labels that rules see", "", "| label | what |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in META_LABELS.items()]
    lines += [
        "",
        "And those that a sink gets: `service`, `namespace`, `version`, `node`, `pod`, "
        "`container`, and any that a rule makes. There is no label with a pid.",
        "",
    ]
    return "\n".join(lines)


def _options() -> str:
    lines = [
        "## `[options]`, options of single kinds",
        "",
        "As `ebpfprof attach` has them, without the dashes.",
        "",
        "| key | kind | default | what |",
        "|---|---|---|---|",
    ]
    for name, (option, kind) in options_of_kinds().items():
        if not option.chooses_events:
            default = str(option.default).lower()
            lines.append(f"| `{name}` | {kind.name} | `{default}` | {option.help} |")
    return "\n".join([*lines, ""])
