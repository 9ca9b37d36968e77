"""`ebpfprof explain`: what is wrong with a process, in a few lines, worst first."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Any, Final

import click

from ebpfprof.commands.shared_options import (
    ALLOW_UNKNOWN_GO_OPTION,
    duration_option,
    json_option,
)
from ebpfprof.commands.target_options import target_options
from ebpfprof.commands.verb import Verb

_SECONDS: Final = 10.0


@click.command("explain", cls=Verb)
@target_options()
@duration_option(default=_SECONDS, help="How long to observe; Ctrl-C ends it earlier.")
@json_option()
@ALLOW_UNKNOWN_GO_OPTION
def command(pids: list[int], duration_s: float, as_json: bool, allow_unknown_go: bool) -> int:
    """Say what is wrong with a process: the worst first, with evidence and what to type next.

    It places no probe in the process. It samples goroutines, the CPU, and the counters of Go's
    runtime and of the kernel. Shares are of the time of requests, or of all goroutines that are not
    idle; what is not well above its threshold, within its error, is not reported.

    The exit code is 0 if nothing was found, 15 if anything was.

    \b
    Examples:
      sudo ebpfprof explain 1234
      sudo ebpfprof explain --name shop --duration 30
      sudo ebpfprof explain 1234 --json | jq -r '.processes[].findings[].title'
    """
    from ebpfprof.console.terminal import has_color, progress, say, width, working
    from ebpfprof.errors import EbpfprofError, ExitCode, FaultFound
    from ebpfprof.export.tables import explanation as table
    from ebpfprof.findings.rules import explained
    from ebpfprof.observing.observer import Observer, observation_options
    from ebpfprof.privileges.checks import require_capabilities
    from ebpfprof.recording.drop_privileges import give_up_before_recording, give_up_probing
    from ebpfprof.recording.live import LiveSession
    from ebpfprof.system.open_files import allow_many
    from ebpfprof.system.signals import Signals, interruptible

    options = observation_options(allow_unknown_go=allow_unknown_go)
    require_capabilities(needs_bpf=options.needs_bpf)
    allow_many()
    give_up_before_recording(options, writes=False, pids=pids)
    with Signals() as signals, ExitStack() as held:
        with working("Reading the program ...", is_shown=not as_json):
            opened = interruptible(lambda: LiveSession(options, capacity=len(pids)))
            live = held.enter_context(opened)
            observer = interruptible(lambda: Observer(live, pids, duration_s))
        give_up_probing(options)
        signals.end_recording_only()
        with progress(duration_s, is_shown=not as_json) as draw:
            observed = observer.observe(lambda gone_s: bool(draw(gone_s)) or signals.came)
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    code: int = ExitCode.OK
    for pid, evidence in zip(pids, observed, strict=True):
        if isinstance(evidence, EbpfprofError):
            say(f"ebpfprof: {evidence}", err=True)
            rows.append({"pid": pid, "error": str(evidence), "exit_code": int(evidence.exit_code)})
            code = evidence.exit_code
            continue
        explanation = explained(evidence)
        if explanation.findings and code == ExitCode.OK:
            code = FaultFound.exit_code
        rows.append(table.as_json(evidence, explanation))
        texts.append(
            table.render(evidence, explanation, width(sys.stdout), color=has_color(sys.stdout))
        )
    if as_json:
        say(json.dumps({"exit_code": code, "processes": rows}, indent=1))
    else:
        say("\n".join(texts), end="")
    return code
