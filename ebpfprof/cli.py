"""The command line: its verbs, each imported when it is called for."""

from __future__ import annotations

from importlib import import_module

import click

import ebpfprof

VERBS = ("attach", "run", "list", "top", "serve", "report", "diff", "doctor", "completion")
"""In the order in which the help shows them; each is `command` in ebpfprof.commands.VERB."""


class _Verbs(click.Group):
    """A group of commands in modules of their own: importing all would take each run longer."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = import_module(f"ebpfprof.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Verbs)
@click.version_option(ebpfprof.__version__, prog_name="ebpfprof")
def cli() -> None:
    """Profile running Go programs from outside: no code change, no restart."""
