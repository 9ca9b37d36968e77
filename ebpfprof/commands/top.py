"""`ebpfprof top`: a live table of where running processes wait or use the processor."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from ebpfprof.commands.parameter_types import Typed, duration
from ebpfprof.commands.recording_options import RecordingCommand
from ebpfprof.commands.shared_options import duration_option, json_option, last_option
from ebpfprof.commands.target_options import target_options
from ebpfprof.console.text import printable
from ebpfprof.errors import to_type
from ebpfprof.settings.values import NumberValue

if TYPE_CHECKING:
    from ebpfprof.profilers.options import Options
    from ebpfprof.system.signals import Signals
    from ebpfprof.top.poller import Poller
    from ebpfprof.top.state import TopView

_LAST_ROWS = 10
_BATCH_ROWS = 20
_TICK_S = 0.1
_KEY = "T"  # ebpfprof.top.tracing
_TRACE_BYTES = 64 << 20
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.1, 3600.0


@click.command("top", cls=RecordingCommand, without=("open_waits",))
@target_options()
@click.option(
    "--interval",
    "interval_s",
    type=duration(_SHORTEST_WAIT_S, _LONGEST_WAIT_S),
    metavar="TIME",
    default=2.0,
    show_default=True,
    help="Refresh interval; rates are averages over it.",
)
@duration_option(default=None, help="End after TIME.  [default: at q or Ctrl-C]")
@click.option(
    "--hide-idle/--show-idle",
    default=True,
    show_default=True,
    help="Hide idle waits (workers without work, tickers, listening servers); a line above the "
    "table has their total.",
)
@click.option(
    "--batch",
    "batches",
    type=Typed(NumberValue(1)),
    metavar="N",
    help="Print N tables one after the other instead of a live table. If stdout or stdin is no "
    "terminal, tables are printed until the end.",
)
@click.option("--once", is_flag=True, help="Print one table: --batch 1.")
@json_option(help="Print all tables as JSON, one line per interval (docs/top.schema.json).")
@last_option(
    help=f"Also record an execution trace and keep its last TIME; {_KEY} writes it. The profiles "
    "and the trace each get half of --max-overhead."
)
def command(
    pids: list[int],
    interval_s: float,
    duration_s: float | None,
    hide_idle: bool,
    batches: int | None,
    once: bool,
    as_json: bool,
    last_s: float | None,
    options: Options,
) -> None:
    """Show live where goroutines wait, how long, and for what; or which code uses the processor.

    Keys: ? shows all keys, q quits. Each profile has a tab, and a letter that opens it; d, c, m, n
    or a click on a heading sort, r reverses, / searches, i shows idle waits, Enter shows the stacks
    and the history of a row, p pauses, w writes pprof files of all since the start, T an execution
    trace.

    \b
    Examples:
      sudo ebpfprof top --pid 1234
      sudo ebpfprof top --name api --profile mutex --by-lock
      sudo ebpfprof top --all-go --profile cpu --interval 5
      sudo ebpfprof top --pid 1234 --last 10s      # T writes a trace of the last 10 s
      sudo ebpfprof top --pid 1234 --once
      sudo ebpfprof top --pid 1234 --once --json
      sudo ebpfprof top --pid 1234 --batch 60 --interval 1 > waits.txt
    """
    from ebpfprof.overhead.process_budget import beside_a_trace
    from ebpfprof.privileges.checks import require_capabilities
    from ebpfprof.recording.drop_privileges import give_up_before_recording, give_up_probing
    from ebpfprof.recording.live import LiveSession
    from ebpfprof.system.open_files import allow_many
    from ebpfprof.system.signals import Signals, check, interruptible
    from ebpfprof.top.poller import Poller
    from ebpfprof.top.state import TopView
    from ebpfprof.top.tracing import TopTrace
    from ebpfprof.tracing.recorder import TraceOptions

    if once and batches not in (None, 1):
        raise click.UsageError("--once and --batch exclude each other: choose one.")
    is_screen = not (once or batches or as_json) and _is_for_screen()
    if last_s is not None:
        _require_trace_is_possible(pids, is_screen=is_screen)
        options = options.replace(max_overhead=beside_a_trace(options.max_overhead))
    require_capabilities(needs_bpf=options.needs_bpf)
    allow_many()
    give_up_before_recording(options, writes=True, pids=pids)
    with ExitStack() as held:
        signals = held.enter_context(Signals())
        notify = held.enter_context(_steps(is_screen))
        notify("compiling the BPF programs")
        make = partial(LiveSession, options, capacity=len(pids))
        session = held.enter_context(interruptible(make))
        targets, starts = [], []
        for pid in pids:
            notify(f"reading the executable and the symbols of process {pid}")
            targets.append(interruptible(partial(session.add, pid)))
        for target in targets:
            check()
            notify(f"attaching to process {target.pid} ({printable(target.name)})")
            starts.append(session.start(target))
        traced = TraceOptions(
            max_overhead=options.max_overhead, last_s=last_s, buffer_bytes=_TRACE_BYTES
        )
        trace = held.enter_context(TopTrace(targets, traced))
        if last_s is not None:
            notify(f"attaching to trace process {targets[0].pid}")
            interruptible(trace.start)
        give_up_probing(options)
        signals.end_recording_only()
        notify("")
        until_s = time.monotonic() + duration_s if duration_s else float("inf")
        poller = Poller(session, targets, starts, options, trace)
        if not poller.views:
            raise click.UsageError("top has no table for these profiles: choose others.")
        names = [view.name for view in poller.views]
        first = next((view.name for view in poller.views if view.option), names[0])
        view = TopView(poller.nothing(), names, first, hide_idle=hide_idle)
        if is_screen:
            _show(poller, view, interval_s, until_s, signals)
        else:
            count = 1 if once else batches
            printed = _json if as_json else _table
            _print_tables(poller, view, interval_s, until_s, count, signals, printed)


def _require_trace_is_possible(pids: list[int], *, is_screen: bool) -> None:
    """Raise click.UsageError if --last is not possible."""
    if len(pids) != 1:
        raise click.UsageError(f"A trace (--last) covers one process, but {len(pids)} were chosen.")
    if not is_screen:
        raise click.UsageError(
            f"--last needs the live table, where {_KEY} writes the trace. Without the table:"
            + to_type("ebpfprof trace --last 5s PID")
        )


def _is_for_screen() -> bool:
    """Whether to show the live table. Raises EbpfprofError if textual is not installed."""
    from ebpfprof.console.terminal import is_terminal, say
    from ebpfprof.errors import EbpfprofError

    if not (is_terminal(sys.stdout) and is_terminal(sys.stdin)):
        return False
    if not _is_unicode():
        say("The live table needs a UTF-8 terminal. Printing tables instead.", err=True)
        return False
    if find_spec("textual") is None:
        raise EbpfprofError(
            "The live table needs the Python package textual: install it (pip install textual), or "
            "print tables with --once or --batch N."
        )
    return True


@contextmanager
def _steps(is_screen: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step in a line of the terminal; "" erases it."""
    from ebpfprof.console.terminal import is_terminal, say, width

    if not (is_screen and is_terminal(sys.stderr)):
        yield lambda _: None
        return

    def notify(what: str) -> None:
        line = f"ebpfprof: {what}..."[: (width(sys.stderr) or 80) - 1] if what else ""
        say(f"\r\x1b[K{line}", err=True, end="")

    try:
        yield notify
    except BaseException:  # also Ctrl-C: erase the line before a message
        notify("")
        raise


def _print_tables(
    poller: Poller,
    view: TopView,
    interval_s: float,
    until_s: float,
    count: int | None,
    signals: Signals,
    text: Callable[[TopView, int], str],
) -> None:
    """Print a table after each interval, and a last one at an earlier end."""
    from ebpfprof.console.terminal import say

    printed = 0
    while count is None or printed < count:
        next_s = min(time.monotonic() + interval_s, until_s)
        while not _ends(poller, signals, until_s) and time.monotonic() < next_s:
            time.sleep(max(min(next_s - time.monotonic(), _TICK_S), 0))
        if not _has_reader():
            return
        view.moment = poller.sample()
        say(("\n" if printed and text is _table else "") + text(view, _BATCH_ROWS), end="")
        printed += 1
        if _ends(poller, signals, until_s):
            return


def _ends(poller: Poller, signals: Signals, until_s: float) -> bool:
    return signals.came or poller.has_ended or time.monotonic() >= until_s or not _has_reader()


def _has_reader() -> bool:
    """Whether stdout may still have a reader; for a pipe (`| head`) the kernel reports its end."""
    if sys.stdout is None:
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def _show(
    poller: Poller, view: TopView, interval_s: float, until_s: float, signals: Signals
) -> None:
    """Show the live table until the user ends it; print its last state after that."""
    from ebpfprof.console.terminal import say
    from ebpfprof.top.app import run_live
    from ebpfprof.top.poller import PollingThread

    with PollingThread(poller, interval_s) as thread:
        run_live(view, thread, lambda: signals.came or time.monotonic() >= until_s)
    if thread.error:
        raise thread.error
    if os.isatty(sys.stdout.fileno()):  # the terminal may be gone
        say(_table(view, _LAST_ROWS), end="")


def _table(view: TopView, limit: int) -> str:
    """Header and rows as text for stdout."""
    from ebpfprof.console.terminal import has_color, is_terminal, width
    from ebpfprof.top.report import plain, rendered, report

    columns = width(sys.stdout)
    ascii_only = not (is_terminal(sys.stdout) and _is_unicode())
    shown = report(view, columns and columns - 1, limit, ascii_only=ascii_only)
    if not is_terminal(sys.stdout):
        return plain(shown)
    return rendered(shown, columns or 80, color=has_color(sys.stdout))


def _json(view: TopView, limit: int) -> str:
    """All tables with all rows, as a line of JSON."""
    from ebpfprof.top.json_form import document

    return json.dumps(document(view, time.time()), separators=(",", ":")) + "\n"


def _is_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
