"""The table of parsers is complete; old failures stay fixed; a share of new inputs passes."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import FrameType

import pytest

from tests.fuzz.driver import CORPUS, ROOT, Parser, TooLong, ask_many, bounded, corpus, fault
from tests.fuzz.mutate import minimised
from tests.fuzz.parsers import PARSERS

NAMES = [parser.name for parser in PARSERS]
# Modules that parse bytes, but none that a target or a stranger's file can choose.
OUR_OWN = {
    "symbolizer.allowance": "counts the work of the parsers",
    "symbolizer.dwarf.constants": "no code",
    "symbolizer.errors": "no code",
    "symbolizer.frames": "no code",
    "symbolizer.go.once": "keeps what others found",
    "symbolizer.unwind.rules": "no code",
    "ebpfprof.goruntime.distinct": "numbers that others read",
    "ebpfprof.kernel.btf": "the kernel's",
    "ebpfprof.agent.explaining": "our own numbers in titles",
    "ebpfprof.commands.cli": "our own command line",
    "ebpfprof.process.proc_files": "the kernel's struct statx",
    "ebpfprof.process.tcp_counters": "the kernel's struct tcp_info",
    "ebpfprof.privileges.capabilities": "the kernel's data on our own process",
    "ebpfprof.kernel.c_facts": "our own C",
    "ebpfprof.kernel.clock": "the kernel's clocks",
    "ebpfprof.profilers.cpu.cpu_program": "rows of our own maps",
    "ebpfprof.profilers.waits.length_table": "rows of our own maps",
    "ebpfprof.profilers.waits.wait_tables": "rows of our own maps",
    "ebpfprof.profilers.waits.runtime_locks": "numbers of our own maps",
    "ebpfprof.profilers.cpu.sample_table": "rows of our own maps; their content goes to names",
    "ebpfprof.profilers.cpu.learner": "rows of our own maps",
    "ebpfprof.profilers.cpu.samplers": "the kernel's list of processors",
    "ebpfprof.agent.log": "our own sentences",
    "ebpfprof.export.tables.explanation": "our own sentences",
    "ebpfprof.agent.rules": "rules that the user gives; values come from the parser environments",
    "ebpfprof.agent.settings_file": "the user's own file: tests/agent/test_settings_file.py",
    "ebpfprof.settings.values": "what the user sets",
    "ebpfprof.settings.toml_file": "the user's own files: tests/agent/test_settings_file.py",
    "ebpfprof.agent.settings": "the user's own file: tests/agent/test_settings_file.py",
    "ebpfprof.agent.sinks.folder": "names of files; tests/agent/test_sinks.py",
    "ebpfprof.agent.sinks.parca": "names of our own labels",
    "ebpfprof.agent.sinks.series": "names of our own labels: tests/agent/test_remote_sinks.py",
    "ebpfprof.console.quantities": "what the user types",
    "ebpfprof.commands.doctor_checks": "the kernel's settings",
    "ebpfprof.commands.config_file": "the user's own files: tests/unit/commands/test_defaults.py",
    "ebpfprof.commands.memory_references": "what the user types",
    "ebpfprof.commands.short_help": "our own help",
    "ebpfprof.system.channel": "frames of our own children: tests/unit/system/test_channel.py",
    "ebpfprof.commands.shared_options": "names of files that the user types",
    "ebpfprof.commands.times": "what the user types: tests/unit/commands/test_times.py",
    "ebpfprof.commands.history_profiles": "names of our own files",
    "ebpfprof.profilers.alarms": "rows of our own maps",
    "ebpfprof.profilers.heap.followed": "rows of our own ring buffer; spans have a parser",
    "ebpfprof.profilers.heap.gate_program": "numbers of our own maps",
    "ebpfprof.profilers.heap.gate_tables": "rows of our own maps",
    "ebpfprof.profilers.waits.pair_table": "numbers of our own maps",
    "ebpfprof.tracing.rings": "rows of our own rings",
    "ebpfprof.tracing.polled_files": "the kernel's data on files, in rows of our own maps",
    "ebpfprof.tracing.heap_counters": "words of which any will do: test_heap_counters.py",
    "ebpfprof.tracing.recorder": "rows of our own rings; their content: test_decode.py, "
    "test_trace_formats.py",
    "ebpfprof.tracing.census": "two words of a runtime.m: any number will do",
    "ebpfprof.tracing.triggers": "goroutines have a parser",
    "ebpfprof.export.timelines.page": "makes bytes of a timeline, takes none apart",
    "ebpfprof.goruntime.process": "turns errors into sentences; tests/kernel/test_bad_target.py",
    "ebpfprof.system.file_worker": "output of our own process",
    "ebpfprof.profile.function_names": "names, which are matched in the parser profiles",
    "ebpfprof.profile.handlers": "our own rules; names are matched in the parser profiles",
    "ebpfprof.profile.idle": "rules that the user gives; names are matched in the parser profiles",
    "ebpfprof.process.launch": "the memory of a program that has not run yet",
    "ebpfprof.kernel.compiler": "output of our own process",
    "ebpfprof.kernel.program_cache": "our own process's, in a folder that only root can write",
    "ebpfprof.kernel.program_source": "our own C",
    "ebpfprof.kernel.packaged_programs": "files of our own package, whose SHA-256 is checked",
    "ebpfprof.kernel.program": "rows of our own maps",
    "ebpfprof.kernel.maps": "rows of our own maps",
    "ebpfprof.profilers.waits.locks": "names come from the parsers lock-names and addresses",
    "ebpfprof.kernel.losses": "our own C",
    "ebpfprof.profilers.kernel_losses": "numbers that our own BPF programs count",
    "ebpfprof.process.memory": "unparsed bytes, no more than the caller asked for",
    "ebpfprof.console.output_file": "names of files that the user gives",
    "ebpfprof.console.output_folder": "names of files that the user gives",
    "ebpfprof.kernel.perf_events": "the kernel's",
    "ebpfprof.privileges.checks": "the kernel's",
    "ebpfprof.server.access": "requests, not targets: tests/server/test_access.py",
    "ebpfprof.server.goroutines": "turns errors into sentences; its parts have parsers",
    "ebpfprof.commands.recording_options": "names of files that the user gives",
    "ebpfprof.goruntime.runtimes": "ELF files and build information have parsers",
    "ebpfprof.commands.short_form": "names of our own files",
    "ebpfprof.server.memory_metrics": "leaves out what can't be read",
    "ebpfprof.goruntime.open_processes": "turns errors into sentences",
    "ebpfprof.server.go_forms": "our own profiles",
    "ebpfprof.server.listener": "requests, not targets: tests/server/test_listener.py",
    "ebpfprof.server.symbols": "requests, not targets: tests/server/test_pprof_endpoints.py",
    "ebpfprof.kernel.sources": "our own C",
    "ebpfprof.top.rows": "our own profiles",
    "ebpfprof.top.state": "our own profiles",
    "ebpfprof.profilers.cpu.partial_samples": "our own ring buffer; its stacks have a parser",
}
# A module that imports one of these parses bytes or text.
TOOLS = {"re", "struct", "numpy", "zlib", "codecs"}


@pytest.fixture(params=PARSERS, ids=NAMES)
def parser(request: pytest.FixtureRequest) -> Parser:
    found: Parser = request.param
    return found


def modules() -> Iterator[tuple[str, Path]]:
    for package in ("symbolizer", "ebpfprof"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name != "__init__.py":  # no code of its own
                yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


def takes_apart(path: Path) -> bool:
    """Whether a module imports one of the tools, or makes an integer of bytes."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names) if {each.name for each in names} & TOOLS:
                return True
            case ast.ImportFrom(module=module) if module in TOOLS:
                return True
            case ast.Attribute(attr="from_bytes" | "frombuffer"):
                return True
    return False


def test_every_module_that_takes_bytes_apart_is_in_the_table() -> None:
    covered = {module for parser in PARSERS for module in parser.covers}
    known = dict(modules())
    assert covered <= known.keys()
    assert OUR_OWN.keys() <= known.keys()
    assert not covered & OUR_OWN.keys()
    missing = [
        name
        for name, path in known.items()
        if name not in covered | OUR_OWN.keys()
        and (name.startswith("symbolizer.") or takes_apart(path))
    ]
    assert missing == []


def test_names_are_those_of_folders() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert {path.name for path in CORPUS.iterdir()} <= set(NAMES)


def test_seeds_are_taken_and_pass_all_that_the_parser_covers(parser: Parser) -> None:
    seeds = parser.seeds()
    files: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        files.add(frame.f_code.co_filename)

    took = 0
    sys.setprofile(note)
    try:
        for seed in seeds:
            with suppress(*parser.allowed):  # a seed may be a wrong input
                parser.ask(seed)
                took += 1
    finally:
        sys.setprofile(None)
    assert took > 0
    paths = dict(modules())
    assert [name for name in parser.covers if str(paths[name]) not in files] == []


def test_what_once_failed_does_not_fail(parser: Parser) -> None:
    parser.seeds()
    # The limits of time are for an idle machine: here only a hang counts.
    with bounded(10 * parser.cpu_s, parser.memory_bytes) as renew:
        for name, data in corpus(parser):
            renew()
            assert fault(parser, data) == "", name


def test_a_share_of_new_inputs(parser: Parser) -> None:
    slow = Parser(**{**vars(parser), "cpu_s": 10 * parser.cpu_s})
    result = ask_many(slow, iter(range(parser.share)), run=0, until=float("inf"), keeps=False)
    assert result.failures == []
    assert result.inputs == parser.share


# The driver itself: a broken one would find nothing.


def made(ask: object, **more: object) -> Parser:
    return Parser("made-up", (), ask, lambda: [b"seed of some bytes"], **more)  # type: ignore[arg-type]  # any of its fields


def tried(parser: Parser, inputs: int = 200) -> list[str]:
    numbers = iter(range(inputs))
    return ask_many(parser, numbers, run=1, until=float("inf"), keeps=False).failures


def test_an_error_that_is_not_allowed_is_a_failure() -> None:
    def ask(data: bytes) -> None:
        if b"\x1b" in data:
            raise KeyError("escape")

    assert len(tried(made(ask))) == 1
    assert tried(made(ask, allowed=(KeyError,))) == []


def test_one_that_does_not_end_is_a_failure() -> None:
    def ask(data: bytes) -> None:
        for _ in count() if len(data) < 9 else ():
            with suppress(Exception):  # a parser that catches all
                pass

    (failure,) = tried(made(ask, cpu_s=0.05))
    assert failure.startswith(TooLong.__name__)


def test_one_that_takes_all_memory_is_a_failure() -> None:
    def ask(data: bytes) -> None:
        if len(data) < 9:
            bytearray(1 << 30)

    (failure,) = tried(made(ask, memory_bytes=256 << 20))
    assert failure.startswith("MemoryError")


def test_a_warning_is_a_failure() -> None:
    import numpy as np

    def ask(data: bytes) -> None:
        _ = np.array([200], np.uint8) // np.array([len(data) // 9], np.uint8)

    assert len(tried(made(ask))) == 1


def test_inputs_are_the_same_each_time_and_differ() -> None:
    parser = PARSERS[0]
    first = [parser.input(0, number) for number in range(50)]
    assert first == [parser.input(0, number) for number in range(50)]
    assert len(set(first)) > 40
    assert first != [parser.input(1, number) for number in range(50)]


def test_what_fails_is_made_small() -> None:
    assert minimised(b"a" * 300 + b"X" + b"b" * 300, lambda data: b"X" in data) == b"X"


def test_bounds_are_taken_back() -> None:
    import resource
    import signal

    before = resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGPROF)
    with bounded(5, 1 << 30):
        assert resource.getrlimit(resource.RLIMIT_AS) != before[0]
    assert (resource.getrlimit(resource.RLIMIT_AS), signal.getsignal(signal.SIGPROF)) == before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
