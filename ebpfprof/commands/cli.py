"""The command line: its verbs, each imported on demand."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Final

import click

import ebpfprof
from ebpfprof.commands.verb import INTERNAL_VERBS, VERBS
from ebpfprof.console.quantities import similar
from ebpfprof.console.text import printable
from ebpfprof.errors import ExitCode

_PIDS: Final = re.compile(r"[0-9]+(,[0-9]+)*")


class _Verbs(click.Group):
    """Commands in modules of their own, since importing all of them takes long."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in (*VERBS, *INTERNAL_VERBS):
            return None
        command = import_module(f"ebpfprof.commands.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but a process alone is for explain.

        Raises click.UsageError, with a suggestion for a mistyped verb.
        """
        if _PIDS.fullmatch(args[0]):
            args = ["explain", *args]
        known = (*VERBS, *INTERNAL_VERBS)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            name = printable(args[0])
            raise click.UsageError(f"There is no verb '{name}'.{similar(args[0], VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What each verb does, in whole sentences: click would cut them off."""
        rows = []
        for name in VERBS:
            command = self.get_command(ctx, name)
            assert command is not None
            rows.append((name, command.get_short_help_str(limit=1 << 10)))
        with formatter.section("Verbs"):
            formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), code.meaning) for code in ExitCode])


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="VERB ...",
)
@click.version_option(ebpfprof.__version__, "-V", "--version", prog_name="ebpfprof")
def cli() -> None:
    """Profile running Go programs from outside: no code change, no restart.

    `ebpfprof VERB --help` has examples, `ebpfprof VERB --help-all` all options.

    \b
    Examples:
      sudo ebpfprof list                            # running Go programs
      sudo ebpfprof explain 1234                    # what is wrong, in ten seconds
      sudo ebpfprof attach 1234                     # record for 30 s, write pprof files
      sudo ebpfprof top --name shop                 # where goroutines wait now
      sudo ebpfprof run -- ./shop --port 8080       # from the first instruction on
      sudo ebpfprof serve --pid 1234                # net/http/pprof, and a web page
      ebpfprof report shop-1234-*.block.pb.gz       # what was recorded
      sudo ebpfprof history --at 03:12 --name shop  # last night, by the agent
    """
