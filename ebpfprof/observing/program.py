"""Reads what a program was built with, and the settings that it was started with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.findings.evidence import ProgramFacts
from ebpfprof.goruntime.godebug import debug_settings

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget


def program_of(go: GoTarget) -> ProgramFacts:
    """The program of a process."""
    info = go.binary.build_info
    return ProgramFacts(
        go.target.pid,
        go.target.name,
        go.binary.version.text,
        info.module if info else "",
        debug_settings(go.target),
        bool(info and info.settings.get("-race") == "true"),
    )
