"""`ebpfprof top`: a live table of where running processes wait or use the processor."""

from __future__ import annotations

import math
import select
import sys
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import click

from ebpfprof.commands.recording_options import RecordingCommand, duration_option, finite
from ebpfprof.commands.target_options import target_options

if TYPE_CHECKING:
    from ebpfprof.profilers.options import Options
    from ebpfprof.system.signals import Signals
    from ebpfprof.top.poller import Poller
    from ebpfprof.top.state import TopView

_LAST_ROWS = 10
_BATCH_ROWS = 20
_TICK_S = 0.1
_LONGEST_WAIT_S = 3600.0


@click.command("top", cls=RecordingCommand, without=("open_waits",))
@target_options()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1, max=_LONGEST_WAIT_S),
    callback=finite,
    metavar="SECONDS",
    default=2.0,
    show_default=True,
    help="The time between two tables, which the rates of the later one are of.",
)
@duration_option(default=None, help="End after so long; else at q or Ctrl-C.")
@click.option(
    "--hide-idle/--show-idle",
    default=True,
    show_default=True,
    help="Leave out waits for work (idle workers, tickers, servers that listen); a line above the "
    "table says how much that was.",
)
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print N tables one after the other instead of taking the screen. Where stdout or stdin "
    "is no terminal, tables are printed until the end.",
)
@click.option("--once", is_flag=True, help="Print one table: --batch 1.")
def command(
    pids: list[int],
    interval_s: float,
    duration_s: float | None,
    hide_idle: bool,
    batches: int | None,
    once: bool,
    options: Options,
) -> None:
    """Show live where goroutines wait, how long, and for what; or which code uses the processor.

    Keys: d, c, m, n sort, r reverses, / filters, i shows idle waits, a letter for each profile
    switches to it (b to block, u to mutex, x to CPU), l to locks, Enter shows the stacks of a row,
    p pauses, w writes pprof files of all since the start, h shows all keys, q ends.

    \b
    Examples:
      sudo ebpfprof top --pid 1234
      sudo ebpfprof top --name api --profile mutex --by-lock
      sudo ebpfprof top --all-go --profile cpu --interval 5
      sudo ebpfprof top --pid 1234 --once
      sudo ebpfprof top --pid 1234 --batch 60 --interval 1 > waits.txt
    """
    from ebpfprof.commands.results import allow_many_files
    from ebpfprof.console.terminal import is_terminal
    from ebpfprof.privileges.checks import require_capabilities
    from ebpfprof.recording.drop_privileges import give_up_before_recording, give_up_probing
    from ebpfprof.recording.live import LiveSession
    from ebpfprof.system.signals import Signals, check, interruptible
    from ebpfprof.top.poller import Poller
    from ebpfprof.top.state import TopView

    if once and batches not in (None, 1):
        raise click.UsageError("--once means --batch 1: give one of them.")
    if duration_s is not None and not math.isfinite(duration_s):
        raise click.UsageError("--duration: this is no number of seconds.")
    is_screen = not (once or batches) and is_terminal(sys.stdout) and is_terminal(sys.stdin)
    require_capabilities(needs_bpf=options.needs_bpf)
    allow_many_files()
    give_up_before_recording(options, writes=True)
    with ExitStack() as held:
        signals = held.enter_context(Signals())
        make = partial(LiveSession, options, capacity=len(pids))
        session = held.enter_context(interruptible(make))
        targets = [interruptible(partial(session.add, pid)) for pid in pids]
        for target in targets:
            check()
            session.start(target)
        samples = [session.begin(target) for target in targets]
        give_up_probing(options)
        signals.end_recording_only()
        until_s = time.monotonic() + duration_s if duration_s else float("inf")
        poller = Poller(session, targets, samples, options)
        if not poller.views:
            raise click.UsageError("`top` has no table of these profiles: choose others.")
        names = [view.name for view in poller.views]
        first = next((view.name for view in poller.views if view.option), names[0])
        view = TopView(poller.nothing(), names, first, hide_idle=hide_idle)
        if is_screen:
            _show(poller, view, interval_s, until_s, signals)
        else:
            count = 1 if once else batches
            _print_tables(poller, view, interval_s, until_s, count, signals)


def _print_tables(
    poller: Poller,
    view: TopView,
    interval_s: float,
    until_s: float,
    count: int | None,
    signals: Signals,
) -> None:
    """One table after each interval, and a last one when it ends earlier."""
    from ebpfprof.console.terminal import say

    printed = 0
    while count is None or printed < count:
        next_s = min(time.monotonic() + interval_s, until_s)
        while not _ends(poller, signals, until_s) and time.monotonic() < next_s:
            time.sleep(max(min(next_s - time.monotonic(), _TICK_S), 0))
        if not _has_reader():
            return
        view.moment = poller.look()
        say(("\n" if printed else "") + _table(view, _BATCH_ROWS), end="")
        printed += 1
        if _ends(poller, signals, until_s):
            return


def _ends(poller: Poller, signals: Signals, until_s: float) -> bool:
    return signals.came or poller.has_ended or time.monotonic() >= until_s or not _has_reader()


def _has_reader() -> bool:
    """Whether stdout may still have a reader: of a pipe (`| head`) the kernel tells."""
    if sys.stdout is None:
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def _show(
    poller: Poller, view: TopView, interval_s: float, until_s: float, signals: Signals
) -> None:
    """The live table, until the user ends it; the last one stays on the screen."""
    from ebpfprof.console.terminal import say
    from ebpfprof.top.poller import PollingThread
    from ebpfprof.top.screen import lines
    from ebpfprof.top.terminal import TopTerminal

    ascii_only = not _is_unicode()
    with TopTerminal() as terminal, PollingThread(poller, interval_s, terminal.wake) as thread:
        ends = False
        while not (ends or signals.came or terminal.is_gone or thread.error):
            columns, rows = terminal.size
            # In the last column some terminals would begin a new line.
            terminal.draw(lines(view, columns - 1, rows, ascii_only=ascii_only))
            keys = terminal.wait(min(until_s - time.monotonic(), _LONGEST_WAIT_S))
            for key in keys:
                action = view.press(key)
                if action == "write":
                    view.message = "Writing..."
                    thread.write()
                elif action == "quit":
                    ends = True
                elif key == "ctrl-l":
                    terminal.clear()
            moment = None if view.paused else thread.moment()
            if moment:
                view.moment = moment
            if thread.message:
                view.message, thread.message = thread.message, ""
            ends = ends or time.monotonic() >= until_s
    if thread.error:
        raise thread.error
    if not terminal.is_gone:
        say(_table(view, min(_LAST_ROWS, max(terminal.size[1] - 8, 1))), end="")


def _table(view: TopView, limit: int) -> str:
    """Header and rows as text for stdout."""
    from ebpfprof.console.terminal import has_color, is_terminal, width
    from ebpfprof.top.screen import report
    from ebpfprof.top.terminal import plain, rendered

    columns = width(sys.stdout)
    ascii_only = not (is_terminal(sys.stdout) and _is_unicode())
    found = report(view, columns and columns - 1, limit, ascii_only=ascii_only)
    if not is_terminal(sys.stdout):
        return plain(found)
    styled = rendered(found, columns or 80, color=has_color(sys.stdout))
    return "".join(f"{line}\n" for line in styled)


def _is_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
