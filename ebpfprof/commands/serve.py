"""`ebpfprof serve`: net/http/pprof and a web page for processes that lack them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ebpfprof.commands.parameter_types import OneOf, WrongValue, duration
from ebpfprof.commands.recording_options import RecordingCommand
from ebpfprof.commands.shared_options import last_option
from ebpfprof.commands.source_option import opened_sources, source_option
from ebpfprof.commands.target_options import ALL_GO_ALONE, NO_PROCESS_CHOSEN, target_options
from ebpfprof.errors import to_type

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.profilers.options import Options
    from ebpfprof.server.access import Policy
    from ebpfprof.server.listener import Address
    from ebpfprof.server.trace_child import TraceSettings

_CAPACITY = 64
_MIN_TOKEN = 16
_MAX_TOKEN = 4096


def _address(ctx: click.Context, param: click.Parameter, value: str) -> Address:
    from ebpfprof.server.listener import ADDRESS

    try:
        address: Address = ADDRESS.parse(value)
    except ValueError as error:
        raise WrongValue(str(error), ctx, param) from error
    return address


def _following(command: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for --all-go, which also serves processes that start later."""

    @functools.wraps(command)
    def with_following(
        *args: Any,  # noqa: ANN401 - arguments of the command, of any type
        pids: list[int],
        names: list[str],
        containers: list[str],
        all_go: bool,
        **values: Any,  # noqa: ANN401 - click's
    ) -> Any:  # noqa: ANN401 - click's
        if all_go and (pids or names):
            raise click.UsageError(ALL_GO_ALONE)
        if not (pids or names or containers or all_go):
            raise click.UsageError(NO_PROCESS_CHOSEN)
        followed = tuple(containers) if all_go else ()
        return command(
            *args,
            pids=pids,
            names=names,
            containers=[] if all_go else containers,
            all_go=False,
            follows=all_go,
            followed=followed,
            **values,
        )

    return with_following


@click.command("serve", cls=RecordingCommand, without=("by_lock", "open_waits"))
@_following
@target_options(required=False)
@click.option(
    "--listen",
    "address",
    callback=_address,
    metavar="HOST:PORT|unix:PATH",
    default="127.0.0.1:6060",
    show_default=True,
    help="Address to listen on; port 0 takes a free port. Other addresses than loopback need a "
    "token.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help=f"Answer only requests with the token in this file (at least {_MIN_TOKEN} characters).",
)
@click.option(
    "--token",
    "token_mode",
    type=OneOf(["auto"]),
    help="auto: generate a token and print it.",
)
@click.option(
    "--continuous",
    is_flag=True,
    help="Record all the time, not only during requests.",
)
@click.option(
    "--window",
    "interval_s",
    type=duration(1, 3600),
    metavar="TIME",
    default=5,
    show_default=True,
    help="Resolution of the page's timeline.",
)
@click.option(
    "--retention",
    "retention_s",
    type=duration(10, 86400),
    metavar="TIME",
    default=600,
    show_default=True,
    help="Length of the page's timeline.",
)
@last_option(
    help="Also record an execution trace of each Go process (at most four), all the time, and keep "
    "its last TIME: /debug/pprof/trace?last returns it, as does a button on the page. The profiles "
    "and the trace each get half of --max-overhead."
)
@source_option
def command(
    pids: list[int],
    follows: bool,
    followed: tuple[str, ...],
    address: Address,
    token_file: str | None,
    token_mode: str | None,
    continuous: bool,
    interval_s: float,
    retention_s: float,
    last_s: float | None,
    source: tuple[str, ...],
    options: Options,
) -> None:
    """Serve net/http/pprof for processes that lack it, and a web page at /.

    /debug/pprof/ has the recorded profiles (`profile` is the CPU profile), goroutine, cmdline and
    symbol. With several processes, each has its own below /proc/PID/debug/pprof/. /metrics is for
    Prometheus.

    A process is recorded during requests. With ?seconds=N, a request records for N seconds.
    Without, profiles of sums, such as block and mutex, hold everything recorded of the process so
    far. If the process was not being recorded, the response takes 5 seconds. The process is
    recorded for 2 more minutes, so that regular requests miss nothing. With --continuous it is
    recorded all the time. Goroutines are read on request, without a recording.

    The page groups by lock if mutex is recorded. Profiles have labels of locks only with
    ?labels=lock, or with --lock-labels.

    On loopback, only root and the user who called sudo get responses. Other users need a token: use
    --token-file, and ?token=TOKEN or the header Authorization: Bearer TOKEN. A unix socket is for
    the user who called sudo.

    \b
    Examples:
      sudo ebpfprof serve --pid 1234
      go tool pprof http://localhost:6060/debug/pprof/block?seconds=5
      curl http://localhost:6060/debug/pprof/goroutine?debug=2
      go tool pprof -http=: http://localhost:6060/debug/pprof/profile?seconds=10
      sudo ebpfprof serve --pid 1234 --last 10s
      curl -o shop.trace http://localhost:6060/debug/pprof/trace?last
      sudo ebpfprof serve --all-go --continuous
      go tool pprof http://localhost:6060/proc/1234/debug/pprof/mutex
      sudo ebpfprof serve --pid 1234 --listen 0.0.0.0:6060 --token auto
      sudo ebpfprof serve --pid 1234 --listen unix:/run/user/1000/ebpfprof.sock
    """
    from contextlib import ExitStack

    from ebpfprof.console.output_folder import invoking_user
    from ebpfprof.console.terminal import say, working
    from ebpfprof.discovery.processes import ProcessTable
    from ebpfprof.errors import Aborted
    from ebpfprof.privileges.checks import require_capabilities
    from ebpfprof.profilers.account import loss_lines
    from ebpfprof.profilers.registry import kind_with_option
    from ebpfprof.recording.drop_privileges import give_up_before_recording
    from ebpfprof.recording.live import LiveSession
    from ebpfprof.server.listener import listening
    from ebpfprof.server.service import Service, run
    from ebpfprof.system.open_files import allow_many
    from ebpfprof.system.signals import Signals, interruptible

    policy = _policy(address, token_file, token_mode)
    options = _with_kinds_without_probes(options)
    options, traces = shared_with_traces(options, last_s)
    require_capabilities(needs_bpf=options.needs_bpf or last_s is not None)
    allow_many()
    service = Service(
        kinds=options.kinds,
        interval_s=interval_s,
        retention_s=retention_s,
        continuous=continuous,
        all_go=follows,
        containers=followed,
        capacity=max(_CAPACITY, len(pids)),
        lock_labels=bool(options["lock_labels"]),
        traces=traces,
    )
    # The page groups by lock; scraped profiles have these labels on request only.
    records_locks = kind_with_option("lock_labels").name in options.kinds
    options = options.replace(lock_labels=records_locks)
    try:
        with ExitStack() as held:
            signals = held.enter_context(Signals())
            listener = held.enter_context(listening(address, invoking_user()))
            sources = held.enter_context(opened_sources(source))
            give_up_before_recording(options, writes=bool(address.path), pids=pids)
            table = held.enter_context(ProcessTable())
            make = functools.partial(LiveSession, options, capacity=service.capacity)
            with working("Compiling the probes ..."):
                live = held.enter_context(interruptible(make))
            targets = []
            for number, pid in enumerate(pids, start=1):
                with working(f"Reading process {pid} ({number} of {len(pids)}) ..."):
                    targets.append(interruptible(functools.partial(live.add, pid)))
                if why := targets[-1].recorded.no_go:
                    say(f"ebpfprof: {why}.", err=True)
            port = listener.getsockname()[1] if not address.path else 0

            def on_ready(manager: Manager) -> None:
                signals.end_recording_only()
                _say_ready(manager, address, port, policy, token_mode, follows)

            completeness = run(
                service,
                live,
                targets,
                policy,
                listener,
                table,
                live.processes,
                on_ready=on_ready,
                should_end=lambda: signals.came,
                sources=sources,
            )
            for line in loss_lines(live.losses(), completeness):
                say(f"ebpfprof: {line}", err=True)
    except KeyboardInterrupt:
        raise Aborted("Aborted.") from None


def _with_kinds_without_probes(options: Options) -> Options:
    """Add the kinds that are sampled from memory all the time: the wall profile.

    Not if all chosen kinds work for any program, which may not be a Go program.
    """
    from ebpfprof.profilers.registry import kind_named, kinds_to_choose

    if not any(kind_named(name).loader.needs_go for name in options.kinds):
        return options
    added = (
        kind.name
        for kind in kinds_to_choose()
        if not kind.loader.needs_bpf and kind.endpoint and not kind.endpoint.reader
    )
    return options.replace(kinds=tuple(dict.fromkeys((*options.kinds, *added))))


def shared_with_traces(options: Options, last_s: float | None) -> tuple[Options, TraceSettings]:
    """The options of the recording and of traces: if last seconds are kept, each has half."""
    from ebpfprof.overhead.process_budget import beside_a_trace
    from ebpfprof.server.trace_child import TraceSettings

    if last_s is not None:
        options = options.replace(max_overhead=beside_a_trace(options.max_overhead))
    return options, TraceSettings(
        last_s, options.max_overhead, options.allow_unknown_go, options.runtime
    )


def _policy(address: Address, token_file: str | None, token_mode: str | None) -> Policy:
    import secrets

    from ebpfprof.console.output_folder import invoking_user
    from ebpfprof.server.access import Policy

    if token_file and token_mode:
        raise click.UsageError("--token-file and --token exclude each other: choose one.")
    token = secrets.token_urlsafe(24) if token_mode else None
    if token_file:
        token = _read_token(token_file)
    if token is None and not address.is_loopback:
        raise click.UsageError(
            f"Other machines could connect to {address}: add --token-file FILE or --token auto, or "
            "listen on 127.0.0.1 and forward the port with ssh -L."
        )
    user = invoking_user()
    return Policy(
        token=token,
        uids=frozenset({0, os.geteuid()} | ({user.uid} if user else set())),
        is_loopback=address.is_loopback,
        is_unix=bool(address.path),
    )


def _read_token(path: str) -> str:
    from ebpfprof.console.text import printable

    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_TOKEN + 1)
    except OSError as error:
        raise click.UsageError(f"Cannot read {printable(path)}: {error.strerror}.") from error
    token = data.decode("ascii", "replace").strip()
    is_sound = token.isascii() and token.isprintable() and " " not in token
    if not (_MIN_TOKEN <= len(token) <= _MAX_TOKEN and is_sound):
        raise click.UsageError(
            f"{printable(path)} has no valid token: one line of at least {_MIN_TOKEN} characters, "
            f"without spaces. To create one:{to_type('openssl rand -hex 16')}"
        )
    return token


def _say_ready(
    manager: Manager,
    address: Address,
    port: int,
    policy: Policy,
    token_mode: str | None,
    follows: bool,
) -> None:
    from ebpfprof.console.terminal import say
    from ebpfprof.profilers.registry import kind_named
    from ebpfprof.server.listener import Address

    served = manager.processes
    names = ", ".join(f"{process.pid} ({process.name})" for process in served[:5])
    if len(served) > 5:
        names += f" and {len(served) - 5} more"
    noun = "process" if len(served) == 1 else "processes"
    urls = Address(address.host, port, address.path).urls()
    token = f"?token={policy.token}" if token_mode else ""
    where = " and ".join(f"{url}/{token}" for url in urls) or str(address)
    what = f"{noun} {names}" if served else "Go processes as they start"
    say(f"serving {what} at {where}; Ctrl-C ends it", err=True)
    endpoints = [kind_named(name).endpoint for name in served[0].kinds] if served else []
    first = next((endpoint.name for endpoint in endpoints if endpoint), None)
    if first and urls and not policy.token:
        # If other processes can start, the address must name one.
        is_alone = len(served) == 1 and not follows
        prefix = "" if is_alone else f"/proc/{served[0].pid}"
        url = f"{urls[0]}{prefix}/debug/pprof/{first}?seconds=5"
        say(f"Next: go tool pprof '{url}'", err=True)
