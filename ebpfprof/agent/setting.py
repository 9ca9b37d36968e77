"""What a setting of the agent is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ebpfprof.agent.values import Value


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the file. With `is_live`, SIGHUP changes it in an agent that runs."""

    name: str
    value: Value
    default: Any
    help: str
    is_live: bool = True
    is_needed: bool = False
    sinks: tuple[str, ...] = ()
    """The types of sinks that have it; () for all."""
