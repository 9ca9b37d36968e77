"""`ebpfprof memory`: what the memory of a running Go program consists of, now."""

from __future__ import annotations

import click

from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.verb import Verb


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
    "--allow-unknown-go",
    is_flag=True,
    help="Also read programs of an unknown Go version, as the nearest known one.",
)
def command(pids: list[int], as_json: bool, show_all: bool, allow_unknown_go: bool) -> int:
    """Show what the memory of a Go program consists of: objects by size and type, stacks, GC.

    It reads the memory of the program while that runs: no probe, no stop, no BPF. If some of
    several processes can't be read, it shows the others; the exit code is that of the first
    failure.

    \b
    Examples:
      sudo ebpfprof memory 1234
      sudo ebpfprof memory --name shop --all
      sudo ebpfprof memory --pid 1234 --json | jq .statistics.allocated_bytes
    """
    from ebpfprof.commands.memory_reports import MemoryReports
    from ebpfprof.process.file_opener import WorkerFileOpener
    from ebpfprof.recording.drop_privileges import give_up_before_looking

    give_up_before_looking()
    with WorkerFileOpener() as files:
        reports = MemoryReports(
            files, as_json=as_json, show_all=show_all, allow_unknown_go=allow_unknown_go
        )
        reports.show(pids)
    return reports.failures[0].exit_code if reports.failures else 0
