"""`ebpfprof attach`: record running processes and write their profiles."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebpfprof.commands.recording_options import RecordingCommand
from ebpfprof.commands.shared_options import (
    duration_option,
    require_one_for_stdout,
    require_types_for,
    writing_options,
)
from ebpfprof.commands.source_option import opened_sources, require_html_for, source_option
from ebpfprof.commands.target_options import target_options
from ebpfprof.console.text import printable
from ebpfprof.errors import Aborted

if TYPE_CHECKING:
    from ebpfprof.commands.results import Writing
    from ebpfprof.profilers.options import Options


@click.command("attach", cls=RecordingCommand)
@target_options()
@duration_option(
    default=30, help="How long to record; Ctrl-C ends it earlier and writes the profiles."
)
@writing_options
@source_option
def command(
    pids: list[int],
    duration_s: float,
    output: Path | None,
    writing: Writing,
    options: Options,
    source: tuple[str, ...],
) -> None:
    """Record running processes and write pprof files.

    \b
    Examples:
      sudo ebpfprof attach 1234
      sudo ebpfprof attach --name shop --duration 1m
      sudo ebpfprof attach --pid 1234 --profile all
      sudo ebpfprof attach --pid 1234 --profile cpu --duration 10 -o cpu.pb.gz
      sudo ebpfprof attach --pid 1234 --profile cpu -o default.pgo
      sudo ebpfprof attach --pid 1234 --profile block,mutex
      sudo ebpfprof attach --pid 1234 --profile mutex --by-lock --open
      sudo ebpfprof attach --pid 1234 -o before
      sudo ebpfprof attach --pid 1234 --profile block -o waits.html
      ssh web1 sudo ebpfprof attach 1234 --profile cpu -q -o - > cpu.pb.gz
    """
    from ebpfprof.commands.results import say_what_is_assumed
    from ebpfprof.console.terminal import progress, working
    from ebpfprof.export.formats import FORMATS
    from ebpfprof.privileges.checks import require_capabilities
    from ebpfprof.recording.drop_privileges import give_up_before_recording, give_up_probing
    from ebpfprof.recording.session import Session
    from ebpfprof.system.open_files import allow_many
    from ebpfprof.system.signals import Signals, interruptible

    require_one_for_stdout(output, len(pids) * len(options.recorded_kinds))
    require_html_for(source, writing.format)
    require_types_for(writing.format, options.recorded_kinds)
    require_capabilities(needs_bpf=options.needs_bpf)
    allow_many()
    has_slices = FORMATS[writing.format].has_slices
    open_session = partial(Session, pids, options, has_slices=has_slices)
    written: list[str] = []
    try:
        with ExitStack() as held:
            writing = replace(writing, sources=held.enter_context(opened_sources(source)))
            give_up_before_recording(options, writes=True, pids=pids)
            signals = held.enter_context(Signals())
            with working("Reading the program ...", is_shown=not writing.is_quiet):
                session = held.enter_context(interruptible(open_session))
            files = writing.prepare(session, output, held)
            say_what_is_assumed(session)
            with working("Attaching ...", is_shown=not writing.is_quiet):
                session.start()
            give_up_probing(options)
            signals.end_recording_only()
            writing.say_recording(session, options, duration_s)
            with progress(duration_s, is_shown=not writing.is_quiet) as draw:
                session.wait(duration_s, lambda gone_s: draw(gone_s) or signals.came)
            writing.write(session, files, written)
    except KeyboardInterrupt:
        names = ", ".join(map(printable, written))
        raise Aborted(f"Aborted. Written: {names or 'nothing'}.") from None
