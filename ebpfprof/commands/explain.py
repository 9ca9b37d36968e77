"""`ebpfprof explain`: what is wrong with a process, in a few lines, worst first."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ebpfprof.commands.shared_options import (
    duration_option,
    json_option,
    last_option,
    opening_options,
)
from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.verb import Verb

if TYPE_CHECKING:
    from ebpfprof.commands.seconds_before import SecondsBefore
    from ebpfprof.goruntime.open_processes import OpenOptions

_SECONDS: Final = 10


@click.command("explain", cls=Verb)
@target_options()
@duration_option(
    default=_SECONDS,
    help="How long to observe, each time; Ctrl-C ends it earlier, and explains what was seen.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Observe again and again until Ctrl-C, and print what changes: new findings, those that "
    "are still there, and those that are gone.",
)
@click.option(
    "--wait-for-trouble",
    is_flag=True,
    help="Observe again and again, and print nothing until requests are slow or goroutines are "
    "stuck. Then record for 15 s, keep a dump, profiles and a trace in a folder, and end.",
)
@last_option(
    help="With --wait-for-trouble: trace the process all the time, within 5 % of its CPU time, and "
    "keep that long before the trouble, too. It is noticed at the end of --duration.",
)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --wait-for-trouble: the folder to make.  [default: COMMAND-PID-DATE-TIME]",
)
@json_option(help="Print JSON; with --watch, a line for each change.")
@click.option("--long", "is_long", is_flag=True, help="Show all evidence, not only 15 lines.")
@opening_options
def command(
    pids: list[int],
    duration_s: float,
    watch: bool,
    wait_for_trouble: bool,
    last_s: float | None,
    folder: Path | None,
    as_json: bool,
    is_long: bool,
    opening: OpenOptions,
) -> int:
    """Say what is wrong with a process: the worst first, with evidence and what to type next.

    It places no probe in the process, but with --last. It samples goroutines, the CPU, and the
    counters of Go's runtime and of the kernel. Shares are of the time of requests, or of all
    goroutines that are not idle; what is not well above its threshold, within its error, is not
    reported.

    The exit code is 0 if nothing was found, 15 if anything was. `ebpfprof 1234` is the same as
    `ebpfprof explain 1234`.

    \b
    Examples:
      sudo ebpfprof explain 1234
      sudo ebpfprof explain --name shop --duration 30
      sudo ebpfprof explain 1234 --watch
      sudo ebpfprof explain 1234 --wait-for-trouble -o /var/tmp/trouble
      sudo ebpfprof explain 1234 --json | jq -r '.processes[].findings[].title'
    """
    from ebpfprof.commands.explaining import Explaining
    from ebpfprof.console.terminal import working
    from ebpfprof.errors import PermissionDenied
    from ebpfprof.observing.observer import Observer, observation_options, open_session
    from ebpfprof.privileges.checks import require_capabilities
    from ebpfprof.recording.drop_privileges import give_up_before_recording, give_up_probing
    from ebpfprof.system.open_files import allow_many
    from ebpfprof.system.signals import Signals, interruptible

    if watch and wait_for_trouble:
        raise click.UsageError("Choose --watch or --wait-for-trouble.")
    if folder and not wait_for_trouble:
        raise click.UsageError("-o needs --wait-for-trouble.")
    if last_s is not None and not wait_for_trouble:
        raise click.UsageError("--last needs --wait-for-trouble.")
    refusal: PermissionDenied | None = None
    try:
        require_capabilities()
    except PermissionDenied as error:  # goroutines can be sampled without
        require_capabilities(needs_bpf=False)
        refusal = error
    options = observation_options(opening, has_bpf=refusal is None)
    allow_many()
    kept = before = None
    if wait_for_trouble:
        from ebpfprof.commands.trouble import KeptEvidence, evidence_options

        kept_options = evidence_options(opening)
        before = _seconds_before(pids, opening, last_s) if last_s is not None else None
        kept = KeptEvidence(folder, kept_options, before)
        give_up_before_recording(kept_options, writes=True, pids=pids)
    else:
        give_up_before_recording(options, pids=pids)
    with Signals() as signals, ExitStack() as held:
        with working("Reading the program ...", is_shown=not as_json):
            try:
                live, refused = interruptible(lambda: open_session(options, len(pids)))
                held.enter_context(live)
                observer = interruptible(lambda: Observer(live, pids, duration_s))
            except PermissionDenied as error:
                raise refusal or error from error
            if before is not None:
                held.enter_context(before)
                interruptible(before.start)
        if kept is None:
            give_up_probing(options)
        signals.end_recording_only()
        explaining = Explaining(
            pids,
            observer,
            signals,
            duration_s,
            as_json=as_json,
            is_long=is_long,
            refusal=refusal or refused,
        )
        if kept is not None:
            return explaining.wait_for_trouble(kept)
        return explaining.watch() if watch else explaining.once()


def _seconds_before(pids: list[int], opening: OpenOptions, last_s: float) -> SecondsBefore:
    from ebpfprof.commands.seconds_before import MOST, SecondsBefore
    from ebpfprof.commands.trouble import TRACE_OVERHEAD

    if len(pids) > MOST:
        raise click.UsageError(f"With --last, choose at most {MOST} processes, not {len(pids)}.")
    return SecondsBefore(pids, opening, last_s=last_s, max_overhead=TRACE_OVERHEAD)
