"""`ebpfprof memory`: what the memory of a running Go program consists of."""

from __future__ import annotations

import click

from ebpfprof.commands.shared_options import ALLOW_UNKNOWN_GO_OPTION, json_option, watch_options
from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.verb import Verb


@click.command("memory", cls=Verb)
@target_options()
@json_option(help="Print JSON, one line per process (docs/memory.schema.json).")
@click.option("--all", "show_all", is_flag=True, help="Show all sizes and types.")
@watch_options(
    help="Sample repeatedly and show the stacks that hold more and more memory: possible leaks."
)
@ALLOW_UNKNOWN_GO_OPTION
def command(
    pids: list[int],
    as_json: bool,
    show_all: bool,
    watch: bool,
    every_s: float,
    duration_s: float | None,
    allow_unknown_go: bool,
) -> int:
    """Show what the memory of a Go program consists of: objects by size and type, stacks, GC.

    It reads the program's memory while the program runs: no probe, no stop, no BPF. If one of
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
    from ebpfprof.recording.drop_privileges import give_up_recording_rights

    if watch and show_all:
        raise click.UsageError("--watch shows stacks that grow: omit --all.")
    give_up_recording_rights()
    with WorkerFileOpener() as files:
        if watch:
            watching = MemoryWatch(files, as_json=as_json, allow_unknown_go=allow_unknown_go)
            watching.watch(pids, every_s=every_s, duration_s=duration_s)
            return watching.failures[0].exit_code if watching.failures else 0
        reports = MemoryReports(
            files, as_json=as_json, show_all=show_all, allow_unknown_go=allow_unknown_go
        )
        reports.show(pids)
    return reports.failures[0].exit_code if reports.failures else 0
