"""What is missing because of Go plugins and of other Go runtimes in a process, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.console.text import listed, printable
from ebpfprof.goruntime.plugins import plugin_modules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.process import Target


def other_code_warning(go: GoTarget, *, has_probes: bool, in_program_only: bool = False) -> str:
    """Sentences about Go code of the process that is not recorded, "" if all is.

    With `has_probes`, waits are recorded, in plugins, too, unless the probes are `in_program_only`;
    else stacks are only read.
    """
    of_plugins = _of_plugins(go, has_probes=has_probes, in_program_only=in_program_only)
    return " ".join(filter(None, (of_plugins, _of_runtimes(go))))


def _of_runtimes(go: GoTarget) -> str:
    if not go.others:
        return ""
    others, has = listed(go.others), "have" if len(go.others) > 1 else "has"
    return (
        f"{others} in process {go.target.pid} {has} a separate Go runtime, which is not recorded: "
        "choose it with --runtime."
    )


def _of_plugins(go: GoTarget, *, has_probes: bool, in_program_only: bool) -> str:
    modules = plugin_modules(go.target, go.binary, go.load_bias)
    paths = dict.fromkeys(_path_at(go.target, module.text) for module in modules)
    known = {plugin.path for plugin in go.plugins}
    unnamed = [printable(path) for path in paths if path and path not in known]
    probed = {plugin.path for plugin in go.plugins if plugin.code and not in_program_only}
    missing = [printable(path) for path in paths if path and path not in probed]
    if has_probes and missing:
        return _waits_missing(missing, are_named=not unnamed)
    if unnamed:
        return f"Stacks lack the functions of {listed(unnamed)}: {_are_plugins(unnamed)}."
    return ""


def missing_allocations(go: GoTarget) -> list[str]:
    """A sentence about plugins, where probes in the program record allocations; none without."""
    paths = [printable(plugin.path) for plugin in go.plugins]
    return (
        [f"allocations in {listed(paths)} are not recorded: {_are_plugins(paths)}"] if paths else []
    )


def _waits_missing(paths: Sequence[str], *, are_named: bool) -> str:
    its = "its" if len(paths) == 1 else "their"
    stacks = "" if are_named else f", and stacks lack {its} functions"
    return (
        f"Waits in {listed(paths)} are not recorded{stacks}: {_are_plugins(paths)} with a separate "
        "copy of the runtime's code."
    )


def _are_plugins(paths: Sequence[str]) -> str:
    return "it is a Go plugin" if len(paths) == 1 else "they are Go plugins"


def _path_at(target: Target, address: int) -> str:
    """The file that is mapped at the runtime address; "" if none is."""
    lines = target.executable_lines()
    return next((line.path for line in lines if line.start <= address < line.limit), "")
