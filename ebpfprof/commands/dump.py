"""`ebpfprof dump`: all goroutines of a running program, now."""

from __future__ import annotations

import sys

import click

from ebpfprof.commands.target_options import target_options

_MAX_APART_S = 3600.0


@click.command("dump")
@target_options()
@click.option("--all", "each_alone", is_flag=True, help="Show each goroutine by itself.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs to read.")
@click.option(
    "--apart",
    "apart_s",
    type=click.FloatRange(min=0, max=_MAX_APART_S),
    default=0.5,
    show_default=True,
    metavar="SECONDS",
    help="The time between the first look and the last, which tell what has not moved.",
)
@click.option(
    "--allow-unknown-go",
    is_flag=True,
    help="Also read programs of an unknown Go version, as the nearest known one.",
)
def command(
    pids: list[int], each_alone: bool, as_json: bool, apart_s: float, allow_unknown_go: bool
) -> None:
    """Show what all goroutines do now, and which of them do not move.

    It reads the memory of the program while that runs: no probe, no stop, no BPF. Goroutines in the
    same state with the same stack are shown together.

    \b
    Examples:
      sudo ebpfprof dump --pid 1234
      sudo ebpfprof dump --pid 1234 --all | less
      sudo ebpfprof dump --name shop --apart 5
      sudo ebpfprof dump --pid 1234 --json | jq '.goroutines[] | select(.did_not_move)'
    """
    from ebpfprof.console.terminal import has_color, say, width
    from ebpfprof.export.tables import goroutines
    from ebpfprof.goruntime.dump import dump
    from ebpfprof.goruntime.process import for_user, inspect
    from ebpfprof.process.file_opener import WorkerFileOpener
    from ebpfprof.process.process import Target
    from ebpfprof.recording.drop_privileges import give_up_before_looking
    from symbolizer import SymbolizerError

    give_up_before_looking()
    with WorkerFileOpener() as files:
        for number, pid in enumerate(pids):
            with Target(pid, files) as target:
                go = inspect(target, allow_unknown_go=allow_unknown_go)
                try:
                    found = dump(go, apart_s=apart_s)
                except SymbolizerError as error:
                    raise for_user(target, error) from error
                finally:
                    go.binary.elf.close()
            if as_json:
                say(goroutines.encode(found))
                continue
            text = goroutines.render(
                found,
                each_alone=each_alone,
                width=width(sys.stdout),
                color=has_color(sys.stdout),
            )
            say(("\n" if number else "") + text, end="")
