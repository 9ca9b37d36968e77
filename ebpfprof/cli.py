"""The command line: options in, words and exit codes out. Nothing is decided here."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

import ebpfprof
from ebpfprof.errors import EbpfprofError, ExitCode
from ebpfprof.output import OutputFile, default_name, invoking_user
from ebpfprof.privileges import require_capabilities
from ebpfprof.profile import Profile
from ebpfprof.target import Target

_KINDS = ("block",)


def main() -> NoReturn:
    """Run the command; the one place where exceptions become exit codes."""
    try:
        code = cli.main(prog_name="ebpfprof", standalone_mode=False)
        sys.exit(code or ExitCode.OK)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except EbpfprofError as error:
        click.echo(f"ebpfprof: {error}", err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("ebpfprof: aborted; nothing was written.", err=True)
        sys.exit(ExitCode.ABORTED)


class _List(click.ParamType):
    """A comma-separated list of values of another type."""

    def __init__(self, inner: click.ParamType) -> None:
        self.name = inner.name
        self._inner = inner

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[object]:
        if isinstance(value, list):
            return value
        return [self._inner.convert(part.strip(), param, ctx) for part in str(value).split(",")]


@click.group()
@click.version_option(ebpfprof.__version__, prog_name="ebpfprof")
def cli() -> None:
    """Profile running Go programs from outside: no code change, no restart."""


@cli.command()
@click.option(
    "-p",
    "--pid",
    "pid_lists",
    type=_List(click.IntRange(min=1)),
    metavar="PID[,PID...]",
    multiple=True,
    required=True,
    help="Process to profile; may be given several times.",
)
@click.option(
    "--profile",
    "kinds",
    type=_List(click.Choice(_KINDS)),
    metavar="KIND[,KIND...]",
    default="block",
    show_default=True,
    help=f"What to record: {', '.join(_KINDS)}.",
)
@click.option(
    "-d",
    "--duration",
    "duration_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=30,
    show_default=True,
    help="How long to record; Ctrl-C ends it earlier and writes what there is.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Where to write, - for stdout.  [default: COMMAND-PID.block.pb.gz]",
)
@click.option(
    "--block-rate",
    "block_rate_ns",
    type=click.IntRange(min=1, max=(1 << 47) - 1),
    metavar="NS",
    default=1,
    show_default=True,
    help="Sample as Go's SetBlockProfileRate: all waits of NS nanoseconds and more, "
    "shorter ones in proportion. 1 takes every wait.",
)
@click.option(
    "--allow-unknown-go",
    is_flag=True,
    help="Try a Go version that is not known, with the layout of the nearest one that is.",
)
def attach(
    pid_lists: Sequence[list[int]],
    kinds: list[str],
    duration_s: float,
    output: Path | None,
    block_rate_ns: int,
    allow_unknown_go: bool,
) -> None:
    """Record running processes and write pprof files.

    \b
    Examples:
      sudo ebpfprof attach --pid 1234
      sudo ebpfprof attach --pid 1234 --duration 10 -o block.pb.gz
      sudo ebpfprof attach --pid 1234 -o - | go tool pprof -top -
    """
    from ebpfprof.session import Options, Session

    del kinds  # there is one so far
    pids = list(dict.fromkeys(pid for pids in pid_lists for pid in pids))
    if output and len(pids) > 1:
        raise click.UsageError("-o names one file, but there are several processes: leave it out.")
    require_capabilities("ebpfprof attach --pid " + ",".join(map(str, pids)))

    with ExitStack() as held:
        stop = held.enter_context(_stop_on_signals())
        session = held.enter_context(
            Session(pids, Options(block_rate_ns=block_rate_ns, allow_unknown_go=allow_unknown_go))
        )
        files = []
        for target in session.targets:
            path = output or Path(default_name(target.name, target.pid, "block"))
            to_stdout = str(path) == "-"
            file = OutputFile.prepare("-" if to_stdout else path, owner=invoking_user())
            files.append(held.enter_context(file))

        session.start()
        click.echo(_recording(session.targets, duration_s), err=True)
        with _progress(duration_s) as tick:
            session.wait(duration_s, lambda gone_s: tick(gone_s) or stop.is_set())
        profiles = session.finish()
        for ending in session.endings():
            click.echo(f"ebpfprof: {ending.text}; the profile holds what was recorded.", err=True)
        for loss in session.losses():
            click.echo(f"ebpfprof: lost {loss}", err=True)
        for target, profile, file in zip(session.targets, profiles, files, strict=True):
            _write(target, profile, file, to_stdout=to_stdout)


def _write(target: Target, profile: Profile, file: OutputFile, *, to_stdout: bool) -> None:
    from ebpfprof.export import pprof, summary

    file.commit(pprof.encode(profile))
    on_terminal = not to_stdout and sys.stdout.isatty()
    text = summary.render(profile, width=None, color=on_terminal)
    click.echo(f"\nWaits of process {target.pid} ({target.name}):\n{text}", err=to_stdout)
    if not to_stdout:
        click.echo(f"Written: {file.name}\nNext: go tool pprof -http=: {file.name}")


def _recording(targets: Sequence[Target], duration_s: float) -> str:
    who = ", ".join(f"{target.pid} ({target.name})" for target in targets)
    return f"recording block profile of process {who} for {duration_s:g} s; Ctrl-C ends it"


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """The first SIGINT or SIGTERM sets the event, the next one raises KeyboardInterrupt."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress(duration_s: float) -> Iterator[Callable[[float], None]]:
    """A function to call with the seconds gone; draws a bar on a terminal, else nothing."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda gone_s: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    with Progress(
        BarColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("recording", total=duration_s)
        yield lambda gone_s: bar.update(task, completed=gone_s)
