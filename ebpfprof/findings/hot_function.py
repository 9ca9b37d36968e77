"""Work that a service should not use its CPU time for, by functions of Go's library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.console.text import percent
from ebpfprof.findings.finding import MOST_CPU_TIME, Finding, Level
from ebpfprof.findings.processors import busy_share, waiting
from ebpfprof.findings.words import cpus, part, place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.findings.cpu import CpuTime, HotStack
    from ebpfprof.findings.evidence import Evidence

_LEAST_PROCESSORS: Final = 0.2
"""Of a CPU: of a service that uses less, no function is worth a change."""
_LEAST_BUSY: Final = 0.5
"""Of all processors: with time to spare, a function that is merely hot costs nobody anything."""
_LEAST_USED: Final = 0.3
"""Of the CPU time of all processors: with less, the process has no CPU, rather than too much to
do."""
_MOST: Final = 0.5
"""Of the CPU time: without work that takes more, the processors have time to spare."""
_STARTS: Final = ("runtime.doInit", "runtime.doInit1")
"""What is done once, when the program starts."""


class Pattern(NamedTuple):
    """Work that takes much CPU time: functions by their names, or by beginnings that end in "*".

    `work` says what it is. `is_waste`: it is unnecessary in any service, if it takes
    `least_share` of the CPU time; other work is only reported of a server with busy processors.
    """

    functions: tuple[str, ...]
    work: str
    advice: str
    is_waste: bool
    least_share: float


PATTERNS: Final = (
    Pattern(
        ("regexp.compile", "regexp.Compile", "regexp.MustCompile", "regexp.CompilePOSIX"),
        "compiling regular expressions",
        "Compile each expression once, in a package variable.",
        True,
        0.1,
    ),
    Pattern(
        (
            "text/template.(*Template).Parse",
            "html/template.(*Template).Parse",
        ),
        "parsing templates",
        "Parse each template once, when the program starts.",
        True,
        0.1,
    ),
    Pattern(
        ("crypto/tls.(*Conn).serverHandshake", "crypto/tls.(*Conn).clientHandshake"),
        "TLS handshakes",
        "Keep connections open: each new one costs about a millisecond.",
        True,
        0.25,
    ),
    Pattern(
        ("crypto/x509.SystemCertPool", "crypto/x509.loadSystemRoots"),
        "reading certificates",
        "Read certificates once, and share the tls.Config.",
        True,
        0.1,
    ),
    Pattern(
        ("runtime.Callers", "runtime.Stack", "runtime/debug.Stack", "runtime.Caller"),
        "recording stacks",
        "Record stacks only for errors, or without runtime.Caller in each log line.",
        True,
        0.2,
    ),
    Pattern(
        ("runtime.concatstrings",),
        "concatenating strings",
        "Use strings.Builder: a string that grows by + is copied each time.",
        False,
        0.25,
    ),
    Pattern(
        ("log.(*Logger).output", "log/slog.(*Logger).log", "go.uber.org/zap.(*Logger).*"),
        "logging",
        "Log less, or check the level before values are formatted.",
        False,
        0.3,
    ),
    Pattern(
        ("encoding/json.*",),
        "JSON",
        "Decode only what is needed, into structs, or use generated code.",
        False,
        0.4,
    ),
    Pattern(
        ("encoding/xml.*", "encoding/gob.*"),
        "XML and gob",
        "Use generated code.",
        False,
        0.4,
    ),
    Pattern(
        ("compress/*",),
        "compression",
        "Use a lower level of compression, or keep what was compressed.",
        False,
        0.4,
    ),
    Pattern(
        ("fmt.*",),
        "formatting text",
        "Use strconv and append where it matters.",
        False,
        0.4,
    ),
    Pattern(
        ("reflect.*",),
        "reflection",
        "Find types and fields once, not for each value.",
        False,
        0.4,
    ),
    Pattern(
        ("time.Now", "time.Since"),
        "reading the clock",
        "Take the time once for many operations.",
        False,
        0.25,
    ),
    Pattern(
        ("runtime.mapIterNext", "internal/runtime/maps.(*Iter).Next", "runtime.mapiternext"),
        "iterating over maps",
        "Keep what is iterated over in a slice.",
        False,
        0.3,
    ),
)
"""The worst first: a stack belongs to the first pattern that it fits."""
_NUMBERED: Final = [
    (function, number) for number, pattern in enumerate(PATTERNS) for function in pattern.functions
]
_EXACT: Final = dict(_NUMBERED)
_BY_BEGINNING: Final = [(f[:-1], number) for f, number in _NUMBERED if f.endswith("*")]
_BEGINNINGS: Final = tuple(beginning for beginning, _ in _BY_BEGINNING)


def find(evidence: Evidence) -> Iterator[Finding]:
    """The pattern that takes most CPU time, if that is waste, or if processors are short."""
    cpu = evidence.cpu_time
    if cpu is None or cpu.processors < _LEAST_PROCESSORS:
        return
    is_short = _is_short(evidence, cpu)
    hot = []
    for pattern, stacks in _by_pattern(cpu):
        share = cpu.share(stacks)
        if share.least >= pattern.least_share and (pattern.is_waste or is_short):
            hot.append((pattern.is_waste, share.value, pattern, stacks))
    if hot:
        _, _, pattern, stacks = max(hot, key=lambda one: one[:2])
        yield _finding(evidence, cpu, pattern, stacks)


def fine(evidence: Evidence) -> str:
    """How many processors the process used."""
    cpu = evidence.cpu_time
    return f"{cpus(cpu.processors)} used" if cpu and cpu.total_ns else ""


def _is_short(evidence: Evidence, cpu: CpuTime) -> bool:
    """Whether it is a server whose processors have little time left."""
    busy, runtime = busy_share(evidence), evidence.runtime
    if not evidence.work.is_server or busy is None or runtime is None:
        return False
    used = cpu.processors / (runtime.after.processors or 1)
    return busy >= _LEAST_BUSY and used >= _LEAST_USED


def _by_pattern(cpu: CpuTime) -> list[tuple[Pattern, list[HotStack]]]:
    """The stacks of each pattern."""
    by_pattern: list[tuple[Pattern, list[HotStack]]] = [(pattern, []) for pattern in PATTERNS]
    names = {name for stack in cpu.stacks for name in stack.names}
    fits = {name: number for name in names if (number := _first_pattern(name)) is not None}
    for stack in cpu.stacks:
        numbers = [fits[name] for name in stack.names & fits.keys()]
        if numbers and stack.names.isdisjoint(_STARTS):
            by_pattern[min(numbers)][1].append(stack)
    return by_pattern


def _first_pattern(name: str) -> int | None:
    number = _EXACT.get(name)
    if number is not None or not name.startswith(_BEGINNINGS):
        return number
    return next(number for begin, number in _BY_BEGINNING if name.startswith(begin))


def _finding(evidence: Evidence, cpu: CpuTime, pattern: Pattern, stacks: list[HotStack]) -> Finding:
    share, hottest = cpu.share(stacks), cpu.hottest(stacks)
    work = evidence.work
    running = work.share(work.where(lambda activity: activity.state == "running"))
    on_cpu = min(1.0, running.value + waiting(evidence)[0].value)
    lines = [pattern.advice]
    if hottest:
        lines.insert(0, f"Most of it in {place(hottest.place)}, {percent(hottest.share.value)}.")
    return Finding(
        kind="hot_function",
        level=Level.SLOW,
        title=f"CPU time: {part(share)} for {pattern.work} ({cpus(cpu.processors)} used).",
        lines=tuple(lines),
        share=share.value,
        error=share.error,
        of_time=None if pattern.is_waste else share.value * on_cpu,
        next=f"attach --pid {evidence.program.pid} --profile cpu",
        place=hottest.place if hottest else None,
        about=frozenset({MOST_CPU_TIME} if share.least >= _MOST else ()),
    )
