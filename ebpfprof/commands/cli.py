"""The command line: its verbs, each imported when it is called for."""

from __future__ import annotations

from importlib import import_module

import click

import ebpfprof
from ebpfprof.commands.verb import INTERNAL_VERBS, VERBS
from ebpfprof.console.quantities import similar
from ebpfprof.console.text import printable


class _Verbs(click.Group):
    """Commands in modules of their own: importing all of them would make each run slower."""

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
        """As click does. Raises click.UsageError, with a suggestion for a mistyped verb."""
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
      sudo ebpfprof list                            # the Go programs that run here
      sudo ebpfprof attach 1234                     # record for 30 s, write pprof files
      sudo ebpfprof top --name shop                 # where do they wait now?
      sudo ebpfprof run -- ./shop --port 8080       # from the first instruction on
      sudo ebpfprof serve --pid 1234                # net/http/pprof, and a page
      ebpfprof report shop-1234-*.block.pb.gz       # what was recorded
      sudo ebpfprof history --at 03:12 --name shop  # and last night, by the agent

    \b
    Exit codes:
      0 all went well             8 the process was gone before anything was recorded
      1 anything else             9 the output could not be written
      2 command line             10 the kernel: uprobes, BPF
      3 no such process          11 BCC is missing
      4 rights are missing       12 the executable is corrupt
      5 no Go program            13 the kernel refused a probe
      6 unknown version of Go    14 doctor: something is deadlocked
      7 32-bit, thread, zombie  126 run: the program can't be executed
    130 aborted                 127 run: there is no such program
    run: else the status of the program
    """
