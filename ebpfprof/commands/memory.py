"""`ebpfprof memory`: what the memory of a running Go program consists of, now."""

from __future__ import annotations

import click

from ebpfprof.commands.parameter_types import Duration
from ebpfprof.commands.recording_options import ALLOW_UNKNOWN_GO_OPTION, duration_option
from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.verb import Verb

_EVERY_S = 10.0
_MIN_EVERY_S = 0.1
_MAX_EVERY_S = 3600.0


@click.command("memory", cls=Verb)
@target_options()
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON, one line for each process (docs/memory.schema.json).",
)
@click.option("--all", "show_all", is_flag=True, help="Show all sizes and types.")
@click.option(
    "--watch",
    is_flag=True,
    help="Look again and again, and show which stacks hold more and more memory: leaks, perhaps.",
)
@click.option(
    "--every",
    "every_s",
    type=Duration(_MIN_EVERY_S, _MAX_EVERY_S),
    metavar="TIME",
    help=f"With --watch: the time between two looks.  [default: {_EVERY_S:g}s]",
)
@duration_option(default=None, help="With --watch: how long, if not until Ctrl-C.")
@ALLOW_UNKNOWN_GO_OPTION
def command(
    pids: list[int],
    as_json: bool,
    show_all: bool,
    watch: bool,
    every_s: float | None,
    duration_s: float | None,
    allow_unknown_go: bool,
) -> int:
    """Show what the memory of a Go program consists of: objects by size and type, stacks, GC.

    It reads the memory of the program while that runs: no probe, no stop, no BPF. If some of
    several processes can't be read, it shows the others; the exit code is that of the first
    failure.

    \b
    Examples:
      sudo ebpfprof memory 1234
      sudo ebpfprof memory --name shop --all
      sudo ebpfprof memory --pid 1234 --watch --every 30s     # what leaks?
      sudo ebpfprof memory --pid 1234 --json | jq .statistics.allocated_bytes
    """
    from ebpfprof.commands.memory_reports import MemoryReports
    from ebpfprof.commands.memory_watch import MemoryWatch
    from ebpfprof.process.file_opener import WorkerFileOpener
    from ebpfprof.recording.drop_privileges import give_up_before_looking

    if not watch and (every_s is not None or duration_s is not None):
        raise click.UsageError("--every and --duration are for --watch.")
    if watch and show_all:
        raise click.UsageError("--watch shows stacks that grow: leave out --all.")
    give_up_before_looking()
    with WorkerFileOpener() as files:
        if watch:
            watching = MemoryWatch(files, as_json=as_json, allow_unknown_go=allow_unknown_go)
            every_s = _EVERY_S if every_s is None else every_s
            watching.watch(pids, every_s=every_s, duration_s=duration_s)
            return watching.failures[0].exit_code if watching.failures else 0
        reports = MemoryReports(
            files, as_json=as_json, show_all=show_all, allow_unknown_go=allow_unknown_go
        )
        reports.show(pids)
    return reports.failures[0].exit_code if reports.failures else 0
