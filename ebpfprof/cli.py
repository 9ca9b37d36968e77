"""The command line: options in, words out. Nothing is decided here."""

import math
import resource
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, Self

import click
from click.core import ParameterSource

import ebpfprof
from ebpfprof.errors import EbpfprofError, ExitCode
from ebpfprof.output import OutputFile, default_name, invoking_user
from ebpfprof.privileges import require_capabilities
from ebpfprof.profile import Kind, Profile
from ebpfprof.target import Target
from ebpfprof.terminal import has_color, progress, say, width
from ebpfprof.text import duration, printable

if TYPE_CHECKING:
    from ebpfprof.report import Report
    from ebpfprof.session import Session

_KINDS = ("block", "mutex", "cpu")
_HEADINGS = {
    "block": "Waits of {process} in {length}",
    "mutex": "Releases of locks that others waited for in {process} in {length}",
    "cpu": "CPU time of {process} in {length}",
    "open": "Goroutines of {process} that still wait after {length}",
}
_MAX_PID = (1 << 31) - 1


class Aborted(EbpfprofError):  # noqa: N818 (as all of ebpfprof.errors)
    """The user did not want to wait for the end."""

    exit_code = ExitCode.ABORTED


def _list_of(inner: "click.ParamType[Any]") -> Callable[..., list[Any]]:
    """A callback that makes a flat list of an option that may be given several times."""

    def convert(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[Any]:
        parts = (part.strip() for value in values for part in value.split(","))
        return list(dict.fromkeys(inner.convert(part, param, ctx) for part in parts))

    return convert


def _label_keys(
    ctx: click.Context, param: click.Parameter, values: Sequence[str]
) -> tuple[str, ...] | None:
    """The keys named; none of them, (), for the word "none", and None for "all"."""
    keys = _list_of(click.STRING)(ctx, param, values)
    if keys == ["all"]:
        return None
    if keys == ["none"]:
        return ()
    if "" in keys or {"all", "none"} & set(keys):
        raise click.BadParameter("Say all, none, or which keys.", ctx, param)
    return tuple(keys)


def _finite(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not math.isfinite(value):
        raise click.BadParameter("This is no number of seconds.", ctx, param)
    return value


@click.group()
@click.version_option(ebpfprof.__version__, prog_name="ebpfprof")
def cli() -> None:
    """Profile running Go programs from outside: no code change, no restart."""


@cli.command()
@click.option(
    "-p",
    "--pid",
    "pids",
    callback=_list_of(click.IntRange(min=1, max=_MAX_PID)),
    metavar="PID[,PID...]",
    multiple=True,
    required=True,
    help="Process to profile; may be given several times.",
)
@click.option(
    "--profile",
    "kinds",
    callback=_list_of(click.Choice(_KINDS)),
    metavar="KIND[,KIND...]",
    multiple=True,
    default=_KINDS,
    show_default=",".join(_KINDS),
    help=f"What to record: {', '.join(_KINDS)}.",
)
@click.option(
    "-d",
    "--duration",
    "duration_s",
    type=click.FloatRange(min=0, min_open=True),
    callback=_finite,
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
    help="Where to write, - for stdout.  [default: COMMAND-PID.KIND.pb.gz]",
)
@click.option(
    "--hz",
    type=click.IntRange(min=1, max=999),
    metavar="HZ",
    default=99,
    show_default=True,
    help="How many CPU samples to take per second of CPU time.",
)
@click.option(
    "--kernel/--no-kernel",
    default=True,
    show_default=True,
    help="Show the kernel's functions in the CPU profile; Go's own profile does not.",
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
    "--mutex-fraction",
    type=click.IntRange(min=1, max=(1 << 31) - 1),
    metavar="N",
    default=1,
    show_default=True,
    help="Sample as Go's SetMutexProfileFraction: one release in N, scaled. 1 takes every one.",
)
@click.option(
    "--by-lock",
    is_flag=True,
    help="Also show which locks were waited for: their names, who held them, who waited.",
)
@click.option(
    "--lock-labels",
    is_flag=True,
    help="Put the lock into the profile files, as labels of the samples.",
)
@click.option(
    "--runtime-locks",
    is_flag=True,
    help="Put the Go runtime's own locks into the mutex profile, too (Go 1.25 and newer).",
)
@click.option(
    "--labels",
    callback=_label_keys,
    metavar="all|none|KEY[,KEY...]",
    multiple=True,
    default=("all",),
    show_default=True,
    help="Which of the labels that the program gave its goroutines (runtime/pprof) to show.",
)
@click.option(
    "--open",
    "open_waits",
    is_flag=True,
    help="Also show who still waits at the end, and write COMMAND-PID.open.pb.gz.",
)
@click.option(
    "--allow-unknown-go",
    is_flag=True,
    help="Try a Go version that is not known, with the layout of the nearest one that is.",
)
@click.pass_context
def attach(
    context: click.Context,
    pids: list[int],
    kinds: list[Kind],
    duration_s: float,
    output: Path | None,
    hz: int,
    kernel: bool,
    block_rate_ns: int,
    mutex_fraction: int,
    by_lock: bool,
    lock_labels: bool,
    runtime_locks: bool,
    labels: tuple[str, ...] | None,
    open_waits: bool,
    allow_unknown_go: bool,
) -> None:
    """Record running processes and write pprof files.

    \b
    Examples:
      sudo ebpfprof attach --pid 1234
      sudo ebpfprof attach --pid 1234 --profile cpu --duration 10 -o cpu.pb.gz
      sudo ebpfprof attach --pid 1234 --profile block,mutex
      sudo ebpfprof attach --pid 1234 --profile mutex --by-lock --open
      sudo ebpfprof attach --pid 1234 --profile block -o - | go tool pprof -top -
    """
    from ebpfprof.options import Options
    from ebpfprof.session import Session

    _require_kind(kinds, "block", {"--block-rate": block_rate_ns != 1})
    of_mutex = {
        "--mutex-fraction": mutex_fraction != 1,
        "--by-lock": by_lock,
        "--lock-labels": lock_labels,
        "--runtime-locks": runtime_locks,
    }
    _require_kind(kinds, "mutex", of_mutex)
    _require_kind(kinds, "cpu", {"--hz": hz != 99, "--no-kernel": not kernel})
    to_write = len(kinds) + open_waits
    if output and len(pids) * to_write > 1:
        raise click.UsageError(
            "-o names one file, but there are several to write "
            f"(processes: {len(pids)}, profiles of each: {to_write}): leave it out, or choose one "
            "with --profile."
        )
    require_capabilities()
    _allow_many_files()
    options = Options(
        kinds=tuple(kinds),
        kinds_given=context.get_parameter_source("kinds") is not ParameterSource.DEFAULT,
        hz=hz,
        kernel=kernel,
        block_rate_ns=block_rate_ns,
        mutex_fraction=mutex_fraction,
        by_lock=by_lock,
        lock_labels=lock_labels,
        open_waits=open_waits,
        runtime_locks=runtime_locks,
        labels=labels,
        allow_unknown_go=allow_unknown_go,
    )
    written: list[str] = []
    try:
        with ExitStack() as held:
            signals = held.enter_context(_Signals())
            session = held.enter_context(Session(pids, options))
            files = [
                held.enter_context(OutputFile.prepare(path, owner=invoking_user()))
                for path in _paths(session, output)
            ]
            for assumption in session.assumptions():
                say(f"ebpfprof: {assumption}; what it shows may be wrong.", err=True)
            for refusal in session.refusals():
                say(f"ebpfprof: {refusal}.", err=True)
            session.start()
            signals.end_recording_only()
            recorded = {kind for each in session.targets for kind in session.files(each)}
            say(
                _recording(session.targets, [k for k in kinds if k in recorded], duration_s),
                err=True,
            )
            with progress(duration_s) as draw:
                session.wait(duration_s, lambda gone_s: draw(gone_s) or signals.came)
            _write(session, files, written)
    except KeyboardInterrupt:
        names = ", ".join(map(printable, written))
        raise Aborted(f"Aborted. Written: {names or 'nothing'}.") from None


def _require_kind(kinds: Sequence[Kind], kind: Kind, given: Mapping[str, bool]) -> None:
    """Refuse options that say something of a profile that is not asked for."""
    for option, is_given in given.items():
        if is_given and kind not in kinds:
            asked_for = ",".join((*kinds, kind))
            raise click.UsageError(
                f"{option} is about the {kind} profile, which is not recorded: add it, with "
                f"--profile {asked_for}."
            )


def _write(session: "Session", files: Sequence[OutputFile], written: list[str]) -> None:
    """Write all that can be written, whatever goes wrong, before a word is said about it.

    Adds the names of the files to `written`. Raises all errors as one group.
    """
    errors: list[Exception] = []
    reports = session.finish()
    written_to = iter(files)
    shown = [(report, [(p, next(written_to)) for p in report.profiles]) for report in reports]
    for _, profiles in shown:
        for profile, file in profiles:
            with _kept(errors):
                _write_one(profile, file)
                written.append(file.name)
    errors += session.failures()
    for ending in session.endings():
        say(f"ebpfprof: {ending.text}; the profile holds what was recorded.", err=True)
    for hint in dict.fromkeys(hint for report in reports for hint in report.hints):
        say(f"ebpfprof: {hint}", err=True)
    for loss in session.losses():
        say(f"ebpfprof: lost {loss}", err=True)
    for report, profiles in shown:
        for profile, file in profiles:
            with _kept(errors):
                _show(report.target, profile, file.name, is_written=file.name in written)
            if profile.kind == "mutex" and report.locks:
                with _kept(errors):
                    _show_locks(report, to_stdout=file.name == "-")
    if errors:
        raise ExceptionGroup("not everything could be written", errors)


def _write_one(profile: Profile, file: OutputFile) -> None:
    from ebpfprof.export import pprof

    file.commit(pprof.encode(profile))


def _show(target: Target, profile: Profile, name: str, *, is_written: bool) -> None:
    from ebpfprof.export import cputable, summary

    to_stdout = name == "-"
    stream = sys.stderr if to_stdout else sys.stdout
    render = cputable.render if profile.kind == "cpu" else summary.render
    table = render(profile, width=width(stream), color=has_color(stream))
    heading = _HEADINGS[profile.kind].format(
        process=f"process {target.pid} ({target.name})", length=duration(profile.duration_ns)
    )
    say(f"\n{heading}:\n{table}", err=to_stdout)
    if is_written and not to_stdout:
        say(f"Written: {printable(name)}")
        say(f"Next: go tool pprof -http=: {printable(shlex.quote(name))}")


def _show_locks(report: "Report", *, to_stdout: bool) -> None:
    from ebpfprof.export import locktable

    stream = sys.stderr if to_stdout else sys.stdout
    table = locktable.render(report.locks, width=width(stream), color=has_color(stream))
    target = report.target
    say(f"\nLocks of process {target.pid} ({target.name}):\n{table}", err=to_stdout, end="")


@contextmanager
def _kept(errors: list[Exception]) -> Iterator[None]:
    """Put an exception into `errors` instead of raising it."""
    try:
        yield
    except Exception as error:
        errors.append(error)


def _paths(session: "Session", output: Path | None) -> "list[Path | Literal['-']]":
    """Where to write the profiles, in the order in which a session has them."""
    if output is not None:
        return ["-" if str(output) == "-" else output]
    return [
        Path(default_name(target.name, target.pid, kind))
        for target in session.targets
        for kind in session.files(target)
    ]


def _recording(targets: Sequence[Target], kinds: Sequence[Kind], duration_s: float) -> str:
    who = ", ".join(f"{target.pid} ({target.name})" for target in targets)
    noun = "process" if len(targets) == 1 else "processes"
    *others, last = kinds
    named = f"{', '.join(others)} and {last}" if others else last
    profiles = named + (" profile" if len(kinds) == 1 else " profiles")
    return f"recording {profiles} of {noun} {who} for {duration_s:g} s; Ctrl-C ends it"


def _allow_many_files() -> None:
    """Raise the soft limit of open files: each probe takes two, a process some twenty."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Signals:
    """SIGINT, SIGTERM and SIGHUP: the first one ends the recording, any other aborts.

    To abort is to raise KeyboardInterrupt. A context manager.
    """

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.came = False
        self._aborts = True
        self._before: dict[int, Any] = {}

    def end_recording_only(self) -> None:
        """From now on there is something to write: the next signal only sets `came`."""
        self._aborts = False

    def __enter__(self) -> Self:
        for number in self._NUMBERS:
            # nohup ignores SIGHUP, and it should remain so.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._aborts:
            raise KeyboardInterrupt
        self.came = self._aborts = True
