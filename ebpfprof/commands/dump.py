"""`ebpfprof dump`: all goroutines of a running program, once or repeatedly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ebpfprof.commands.reachable_leaks import leaks_option
from ebpfprof.commands.shared_options import (
    apart_option,
    json_option,
    opening_options,
    watch_options,
)
from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.verb import Verb

if TYPE_CHECKING:
    from ebpfprof.goruntime.open_processes import OpenOptions

_APART_S = 0.5


@click.command("dump", cls=Verb)
@target_options()
@click.option("--all", "show_all", is_flag=True, help="Show each goroutine, not groups.")
@json_option()
@leaks_option
@apart_option(default_s=_APART_S, may_be_0=True)
@watch_options(help="Sample repeatedly and show the groups that only grow: possible leaks.")
@click.option("--no-pager", is_flag=True, help="Don't use a pager.")
@opening_options
def command(
    pids: list[int],
    show_all: bool,
    as_json: bool,
    finds_leaks: bool,
    apart_s: float | None,
    watch: bool,
    every_s: float,
    duration_s: float | None,
    no_pager: bool,
    opening: OpenOptions,
) -> int:
    """Show what all goroutines do now, what they wait for, and which do not move.

    It reads the program's memory while the program runs: no probe, no stop, no BPF. Goroutines in
    the same state with the same stack are one group. If one of several processes can't be read, it
    shows the others; the exit code is that of the first failure.

    \b
    Examples:
      sudo ebpfprof dump 1234
      sudo ebpfprof dump --pid 1234 --all
      sudo ebpfprof dump --name shop --apart 5
      sudo ebpfprof dump --pid 1234 --leaks
      sudo ebpfprof dump --pid 1234 --watch --every 30
      sudo ebpfprof dump --pid 1234 --json | jq '.goroutines[] | select(.did_not_move)'
    """
    from ebpfprof.commands.dumping import Dumping, DumpOptions
    from ebpfprof.console.pager import paged
    from ebpfprof.process.file_opener import WorkerFileOpener
    from ebpfprof.recording.drop_privileges import give_up_recording_rights

    if watch and (show_all or finds_leaks or apart_s is not None):
        raise click.UsageError("--watch compares its own samples: omit --all, --leaks and --apart.")
    give_up_recording_rights()
    chosen = DumpOptions(
        as_json, show_all, finds_leaks, _APART_S if apart_s is None else apart_s, opening
    )
    with WorkerFileOpener() as files:
        dumping = Dumping(files, chosen)
        if watch:
            dumping.watch(pids, every_s=every_s, duration_s=duration_s)
        else:
            with paged(is_wanted=not (as_json or no_pager)) as show:
                dumping.dump(pids, show)
    return dumping.failures[0].exit_code if dumping.failures else 0
