"""`ebpfprof memory`: what the memory of a running Go program consists of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebpfprof.commands.shared_options import (
    FORCE_OPTION,
    format_for,
    format_option,
    json_option,
    opening_options,
    output_option,
    watch_options,
)
from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.verb import Verb
from ebpfprof.export.formats import PROFILES

if TYPE_CHECKING:
    from ebpfprof.goruntime.open_processes import OpenOptions

_FORMATS = tuple(name for name in PROFILES if name not in ("pgo", "json"))


@click.command("memory", cls=Verb)
@target_options()
@json_option(
    help="Print JSON, one line per process (docs/memory.schema.json; with --references or --why "
    "docs/references.schema.json)."
)
@click.option("--all", "show_all", is_flag=True, help="Show all sizes and types.")
@click.option(
    "--references",
    is_flag=True,
    help="Show what keeps objects alive: paths of references from variables, goroutines, "
    "finalizers.",
)
@click.option(
    "--why",
    metavar="WHAT",
    help="Show why objects are alive: those of a type (main.session), at an address (0xc000...), "
    "or allocated by a function (main.load; those that the memory profile sampled); and what "
    "each reference on the way would free if it were cut.",
)
@format_option(_FORMATS, default="text", help="With --references: output format.")
@output_option(default="stdout")
@FORCE_OPTION
@watch_options(
    help="Sample repeatedly and show the stacks that hold more and more memory: possible leaks. "
    "With --references: the paths."
)
@opening_options
def command(
    pids: list[int],
    as_json: bool,
    show_all: bool,
    references: bool,
    why: str | None,
    format_name: str | None,
    output: Path | None,
    force: bool,
    watch: bool,
    every_s: float,
    duration_s: float | None,
    opening: OpenOptions,
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
      sudo ebpfprof memory --pid 1234 --references            # what keeps objects alive?
      sudo ebpfprof memory --pid 1234 --references -o references.html
      sudo ebpfprof memory --pid 1234 --why main.session      # and what would free them?
    """
    from ebpfprof.commands.memory_references import ReferenceReports
    from ebpfprof.commands.memory_reports import MemoryReports, ProcessReports
    from ebpfprof.commands.memory_watch import MemoryWatch
    from ebpfprof.process.file_opener import WorkerFileOpener
    from ebpfprof.recording.drop_privileges import give_up_recording_rights

    if watch and show_all:
        raise click.UsageError("--watch shows stacks that grow: omit --all.")
    shown_format = format_for(format_name, output, default="text", formats=_FORMATS)
    if (format_name or output) and (not references or watch or why or as_json):
        raise click.UsageError("-f and -o are for --references alone.")
    if output and len(pids) > 1:
        raise click.UsageError("-o takes one process: the file would have the last one's.")
    if why is not None and watch:
        raise click.UsageError("--why and --watch exclude each other: choose one.")
    give_up_recording_rights()
    with WorkerFileOpener() as files:
        if watch:
            watching = MemoryWatch(
                files,
                as_json=as_json,
                references=references,
                opening=opening,
            )
            watching.watch(pids, every_s=every_s, duration_s=duration_s)
            return watching.failures[0].exit_code if watching.failures else 0
        reports: ProcessReports
        if references or why is not None:
            reports = ReferenceReports(
                files,
                as_json=as_json,
                show_all=show_all,
                why=why,
                output=output,
                format_name=shown_format,
                force=force,
                opening=opening,
            )
        else:
            reports = MemoryReports(files, as_json=as_json, show_all=show_all, opening=opening)
        reports.show(pids)
    return reports.failures[0].exit_code if reports.failures else 0
