"""`ebpfprof dump`: all goroutines of a running program, now; or again and again."""

from __future__ import annotations

import click

from ebpfprof.commands.parameter_types import Duration
from ebpfprof.commands.recording_options import ALLOW_UNKNOWN_GO_OPTION, duration_option
from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.verb import Verb

_APART_S = 0.5
_EVERY_S = 10.0
_MAX_APART_S = 3600.0
_MIN_EVERY_S = 0.1


@click.command("dump", cls=Verb)
@target_options()
@click.option("--all", "each_alone", is_flag=True, help="Show each goroutine by itself.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs to read.")
@click.option(
    "--apart",
    "apart_s",
    type=Duration(most_s=_MAX_APART_S, may_be_0=True),
    metavar="TIME",
    help="The time between the first look and the last, which tell what has not moved.  "
    f"[default: {_APART_S:g}s]",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Look again and again, and show which groups only grow: leaks, perhaps.",
)
@click.option(
    "--every",
    "every_s",
    type=Duration(_MIN_EVERY_S, _MAX_APART_S),
    metavar="TIME",
    help=f"With --watch: the time between two looks.  [default: {_EVERY_S:g}s]",
)
@duration_option(default=None, help="With --watch: how long, if not until Ctrl-C.")
@click.option("--no-pager", is_flag=True, help="Don't show a long text in a pager.")
@ALLOW_UNKNOWN_GO_OPTION
def command(
    pids: list[int],
    each_alone: bool,
    as_json: bool,
    apart_s: float | None,
    watch: bool,
    every_s: float | None,
    duration_s: float | None,
    no_pager: bool,
    allow_unknown_go: bool,
) -> int:
    """Show what all goroutines do now, what they wait for, and which of them do not move.

    It reads the memory of the program while that runs: no probe, no stop, no BPF. Goroutines in the
    same state with the same stack are shown together. If some of several processes can't be read,
    it shows the others; the exit code is that of the first failure.

    \b
    Examples:
      sudo ebpfprof dump 1234
      sudo ebpfprof dump --pid 1234 --all
      sudo ebpfprof dump --name shop --apart 5
      sudo ebpfprof dump --pid 1234 --watch --every 30
      sudo ebpfprof dump --pid 1234 --json | jq '.goroutines[] | select(.did_not_move)'
    """
    from ebpfprof.commands.dumping import Dumping, DumpOptions
    from ebpfprof.console.pager import paged
    from ebpfprof.process.file_opener import WorkerFileOpener
    from ebpfprof.recording.drop_privileges import give_up_before_looking

    if not watch and (every_s is not None or duration_s is not None):
        raise click.UsageError("--every and --duration are for --watch.")
    if watch and (each_alone or apart_s is not None):
        raise click.UsageError("--watch compares its own looks: leave out --all and --apart.")
    give_up_before_looking()
    chosen = DumpOptions(
        as_json, each_alone, _APART_S if apart_s is None else apart_s, allow_unknown_go
    )
    with WorkerFileOpener() as files:
        dumping = Dumping(files, chosen)
        if watch:
            every_s = _EVERY_S if every_s is None else every_s
            dumping.watch(pids, every_s=every_s, duration_s=duration_s)
        else:
            with paged(is_wanted=not (as_json or no_pager)) as show:
                dumping.dump(pids, show)
    return dumping.failures[0].exit_code if dumping.failures else 0
