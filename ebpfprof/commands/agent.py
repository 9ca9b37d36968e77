"""`ebpfprof agent`: the service that records all Go processes of a machine, all the time."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from ebpfprof.commands.shared_options import config_option
from ebpfprof.commands.target_options import keep_libraries_to_one_thread
from ebpfprof.commands.verb import Verb

if TYPE_CHECKING:
    from ebpfprof.agent.service import Agent
    from ebpfprof.agent.settings import Settings
    from ebpfprof.profilers.options import Options


@click.command("agent", cls=Verb)
@config_option(help="The file with the settings.")
@click.option(
    "--check",
    "only_checks",
    is_flag=True,
    help="Print the settings and the processes to record, with their service names, and exit.",
)
def command(config: str | None, only_checks: bool) -> None:
    """Record all Go processes of this machine, all the time, as a service.

    Without a file it records waits, CPU time and goroutines of all Go processes, within 2 % of the
    machine's CPU time, into a local ring that `ebpfprof history` reads. A file can add Pyroscope,
    Parca and OpenTelemetry Collectors. SIGHUP reloads the file, SIGTERM ends the agent.

    \b
    Examples:
      sudo ebpfprof agent
      sudo ebpfprof agent --check
      sudo ebpfprof agent --config ./agent.toml
      sudo kill -HUP $(cat /run/ebpfprof/agent.lock)
      curl http://127.0.0.1:6061/metrics
    """
    keep_libraries_to_one_thread()
    from ebpfprof.system import lean_start

    with lean_start.prepared():
        from ebpfprof.agent.settings_file import load

        settings = load(config)
        if only_checks:
            _check(settings)
        else:
            _run(settings, config)


def _run(settings: Settings, path: str | None) -> None:
    import asyncio
    import functools
    import time
    from contextlib import ExitStack

    from ebpfprof.agent.endpoints import application
    from ebpfprof.agent.explaining import ProcessExplanation
    from ebpfprof.agent.log import Log
    from ebpfprof.agent.rounds import SPARE_PLACES
    from ebpfprof.agent.service import Agent
    from ebpfprof.agent.settings_file import load
    from ebpfprof.agent.single_instance import only_agent
    from ebpfprof.discovery.processes import ProcessTable
    from ebpfprof.errors import Aborted
    from ebpfprof.findings.rules import explained
    from ebpfprof.observing.memory_limits import MemoryLimits
    from ebpfprof.observing.observer import observation_options, open_session
    from ebpfprof.observing.repeated import RepeatedObserver
    from ebpfprof.privileges.checks import require_capabilities
    from ebpfprof.recording.drop_privileges import give_up_before_recording
    from ebpfprof.recording.live import LiveSession
    from ebpfprof.server.last_words import last_words
    from ebpfprof.server.listener import listening
    from ebpfprof.system.notify import Notifier
    from ebpfprof.system.open_files import allow_many
    from ebpfprof.system.signals import Signals, hangups, interruptible, reload_on_hangup

    options = _options(settings)
    require_capabilities(needs_bpf=options.needs_bpf)
    allow_many()
    log = Log()
    try:
        with ExitStack() as held:
            signals = held.enter_context(Signals())
            reload_on_hangup()
            held.enter_context(only_agent())
            listener = None
            if settings.listen:
                listener = held.enter_context(listening(settings.listen, None))
            give_up_before_recording(options)
            table = held.enter_context(ProcessTable())
            capacity = settings.max_processes + SPARE_PLACES
            # A name that changes once its route is known would be another series.
            make = functools.partial(LiveSession, options, capacity=capacity, has_routes=False)
            live = held.enter_context(interruptible(make))
            observed = observation_options(options.opening)
            observer = held.enter_context(
                RepeatedObserver(lambda: open_session(observed, 1, live.processes)[0])
            )

            def find(
                pid: int, length_s: float, should_stop: Callable[[float], bool]
            ) -> ProcessExplanation:
                began_s = time.thread_time() + observer.sampling_s
                findings = explained(observer.observe(pid, length_s, should_stop)).findings
                return ProcessExplanation(
                    findings, time.thread_time() + observer.sampling_s - began_s
                )

            limits = MemoryLimits()
            keep = functools.partial(last_words, live.processes)
            agent = Agent(settings, live, find, limits.near, keep, table, log, Notifier())

            def on_ready() -> None:
                signals.end_recording_only()
                log.say(_ready(agent))
                log.say(_orders(listener, path))

            work = agent.run(
                application(agent),
                listener,
                should_end=lambda: signals.came,
                reloads=hangups,
                load=lambda: load(path),
                on_ready=on_ready,
            )
            asyncio.run(work)
    except KeyboardInterrupt:
        raise Aborted("Aborted.") from None


def _options(settings: Settings) -> Options:
    """The recording options of the settings."""
    from ebpfprof.profilers.options import Options

    common = Options(
        kinds=settings.kinds,
        labels=settings.goroutine_labels,
        max_overhead=settings.max_overhead,
        allow_unknown_go=settings.allow_unknown_go,
        by_handler=settings.by_handler,
    )
    return common.replace(**settings.options)


def _ready(agent: Agent) -> str:
    from ebpfprof.console.text import listed
    from ebpfprof.profilers.registry import kind_named

    settings, rounds = agent.settings, agent.rounds
    titles = listed([kind_named(name).title for name in settings.kinds])
    sinks = [sink.name for sink in agent.sinks.all]
    where = f"into {listed(sinks)}" if sinks else "but there is no sink for them"
    now = rounds.recorded + rounds.starting
    return (
        f"Recording {titles} profiles of Go processes, {where}: {now} now, "
        f"{len(rounds.waiting)} waiting."
    )


def _orders(listener: socket.socket | None, path: str | None) -> str:
    """How to read metrics, reload and end."""
    from ebpfprof.agent.settings_file import DEFAULT_PATH
    from ebpfprof.console.text import printable
    from ebpfprof.server.listener import Address

    metrics = ""
    if listener and listener.family != socket.AF_UNIX:
        host, port = listener.getsockname()[:2]
        metrics = f"Metrics are at {Address(host, port).urls()[0]}/metrics; "
    file = printable(path or DEFAULT_PATH)
    return f"{metrics}SIGHUP reloads {file}, SIGTERM ends the agent."


def _check(settings: Settings) -> None:
    from ebpfprof.agent.checking import answers, as_toml, rows
    from ebpfprof.agent.identity.pods import pods_of_node
    from ebpfprof.console.terminal import say
    from ebpfprof.console.text import printable
    from ebpfprof.discovery.processes import ProcessTable, not_answered, not_seen
    from ebpfprof.recording.drop_privileges import give_up_recording_rights

    give_up_recording_rights()
    with ProcessTable() as processes:
        survey = processes.survey()
    say(as_toml(settings))
    others = [process for process in survey.go if process.pid != os.getpid()]
    pods = pods_of_node(settings, lambda sentence: say(f"ebpfprof: {sentence}", err=True))
    table = rows(settings, others, pods)
    for sentence in answers(pods):
        say(sentence)
    pods.close()
    say(_table(table) if table else "No Go process is running here.\n", end="")
    if survey.unanswered:
        say(f"ebpfprof: {printable(not_answered(survey.unanswered))}", err=True)
    if survey.unseen:
        say(f"ebpfprof: {not_seen(survey.unseen)}", err=True)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns that are as wide as they need to be, without those that are empty."""
    from ebpfprof.console.columns import Line, TextColumn, aligned

    headings = ("PID", "Process", "Service", "Namespace", "Version", "Recorded")
    used = [number for number in range(len(headings)) if any(row[number] for row in rows)]
    cells = [[[Line(row[number])] for number in used] for row in rows]
    return aligned([TextColumn(headings[number]) for number in used], cells, color=False)
