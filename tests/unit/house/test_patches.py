"""Tests of a module by itself go through its parameters: they don't patch its insides."""

from __future__ import annotations

import ast
import pkgutil
import re
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.unit.house.test_names import modules

_KERNEL = "the kernel's answer, which differs by version and machine"
_COUNTED = "to count how often it is called"
_MEANWHILE = "to have the target do something just then, as in a race"
_SLOW = "to take as long as on a busy machine"
_REPLAYED = "tests/recorded: what was saved stands for the kernel, processes and time"
_KEPT = "tests/recorded: to keep what comes from the kernel"
_REMEMBERED = "tests/fuzz: to decode the same instructions once"
BORDERS = {
    "ebpfprof.__version__": _REPLAYED,
    "ebpfprof.commands.doctor_process.WorkerFileOpener": _REPLAYED,
    "ebpfprof.commands.list.loads_of": _REPLAYED,
    "ebpfprof.commands.results.own_cost": _REPLAYED,
    "ebpfprof.discovery.processes.ProcessTable": _REPLAYED,
    "ebpfprof.goruntime.goroutines.labels.LabelReader.read": "memory that can't be read",
    "ebpfprof.goruntime.open_processes.Target": _REPLAYED,
    "ebpfprof.goruntime.process.probe_sites": "to read labels of a program that sets none",
    "ebpfprof.goruntime.samples.sampler.GoroutineSampler.sample": "memory that can't be read",
    "ebpfprof.goruntime.samples.shared_sampler.SharedSampler.stop": _SLOW,
    "ebpfprof.goruntime.waits.object_fields.ObjectFields.of": "types of a program that is made up",
    "ebpfprof.goruntime.waits.stuck_check.StuckCheck.sample_again": _COUNTED,
    "ebpfprof.kernel.features.have_growing_maps": _KERNEL,
    "ebpfprof.kernel.features.have_may_goto": _KERNEL,
    "ebpfprof.kernel.packaged_programs.folder": "where an installed package has its files",
    "ebpfprof.kernel.perf_events.count": _KERNEL,
    "ebpfprof.kernel.perf_events.may_open_events": _KERNEL,
    "ebpfprof.kernel.perf_events.open_cpu_sampler": _KERNEL,
    "ebpfprof.kernel.program.BpfProgram.dispatches": "to measure what that saves",
    "ebpfprof.kernel.program_source.program_text": "the files of bpf/",
    "ebpfprof.kernel.syscalls.perf_event_open": _KERNEL,
    "ebpfprof.kernel.uprobe_links.is_offered": _KERNEL,
    "ebpfprof.overhead.busy.ProcessorTime.taken": _REPLAYED,
    "ebpfprof.privileges.checks.missing_capabilities": _REPLAYED,
    "ebpfprof.privileges.checks.require_capabilities": _REPLAYED,
    "ebpfprof.process.control_groups.ControlGroup.read": "the kernel's numbers of a group",
    "ebpfprof.process.control_groups.ControlGroups.of": "the group that the kernel has it in",
    "ebpfprof.process.file_opener.WorkerFileOpener": _REPLAYED,
    "ebpfprof.process.process.Target.__init__": "to see that no process is opened",
    "ebpfprof.process.process.require_process": _REPLAYED,
    "ebpfprof.profilers.cpu.cpu_program.BpfProgram": _REPLAYED,
    "ebpfprof.profilers.cpu.cpu_program.Samplers": _REPLAYED,
    "ebpfprof.profilers.heap.heap_stacks.HeapStacks.shown_alike": "tables with contradictions",
    "ebpfprof.profilers.waits.budgeted_waits.SampledSums": _KEPT,
    "ebpfprof.profilers.waits.collector.BpfProgram": _REPLAYED,
    "ebpfprof.profilers.waits.collector.WaitTables": _KEPT,
    "ebpfprof.profilers.waits.collector.WaitsCollector.pause": _SLOW,
    "ebpfprof.profilers.waits.collector.target_fields": "stacks that can't be read",
    "ebpfprof.profilers.waits.estimates.estimates": _KEPT,
    "ebpfprof.profilers.waits.long_waits.LongWaits.begin": _SLOW,
    "ebpfprof.profilers.waits.open_recorder.read_parked": _MEANWHILE,
    "ebpfprof.profilers.waits.pair_table.PairTable.sums": "to see what the kernel has",
    "ebpfprof.profilers.waits.probe_sites.SiteTable.probes": "the last probes of many are refused",
    "ebpfprof.profilers.waits.probe_sites.SiteTable.run_probes": "the same",
    "ebpfprof.recording.drop_privileges.give_up_before_recording": _REPLAYED,
    "ebpfprof.recording.drop_privileges.give_up_probing": _REPLAYED,
    "ebpfprof.recording.drop_privileges.give_up_recording_rights": _REPLAYED,
    "ebpfprof.profilers.cpu.learner.Learner.install": "so that each sample is unwound by Python",
    "ebpfprof.recording.live.LoadedProfilers": "to see that no BPF program is loaded",
    "ebpfprof.recording.live.SamplingThread": _REPLAYED,
    "ebpfprof.recording.live.WorkerFileOpener": _REPLAYED,
    "ebpfprof.recording.loaded_profilers.ProcessRecordings.start": _MEANWHILE,
    "ebpfprof.recording.session.Session": _REPLAYED,
    "ebpfprof.recording.session.reported": _KEPT,
    "ebpfprof.system.channel.MessageChannel.ask": "a process that takes its time to answer",
    "ebpfprof.system.open_files.allow_many": _REPLAYED,
    "ebpfprof.system.pid_namespace.sees_whole_machine": _REPLAYED,
    "ebpfprof.timeline.waitgraph.wait_graph": _COUNTED,
    "symbolizer.GoBinary.frames_many": _COUNTED,
    "symbolizer.GoBinary.function_at": _COUNTED,
    "symbolizer.codeanalysis.cgo_callback.decode": _REMEMBERED,
    "symbolizer.codeanalysis.globals.decode": _REMEMBERED,
    "symbolizer.codeanalysis.park_sites.decode": _REMEMBERED,
    "symbolizer.codeanalysis.runtime_functions.decode": _REMEMBERED,
    "symbolizer.codeanalysis.semaphores.reachable": _COUNTED,
    "symbolizer.go.stack_switch.decode": _REMEMBERED,
    "symbolizer.x86.call_sites.InstructionStarts.among": _REMEMBERED,
}
"""What of ours tests patch, each with the reason why no parameter can do the same."""

TAMPERED = "tests/kernel/tampered.py"
"""Runs the command with a public function of it replaced, to stop or fail it at that moment."""

_PATCHING = ("setattr", "delattr", "setitem", "delitem", "object", "patch", "multiple")
_TAMPERING = ("tamper", "stop_before", "fail_at")  # in TAMPERED
_OF_ITEMS = ("setitem", "delitem")
_OURS = ("ebpfprof.", "symbolizer.")


def patched(source: str) -> Iterator[str]:
    """The names in ebpfprof and symbolizer that a module of tests patches; * for computed ones.

    A private name that is patched on any other object comes with a dot before it.
    """
    tree = ast.parse(source)
    names = dict(_imported(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=how) | ast.Name(id=how), args=[first, *rest], keywords=more
            ) if how in (*_PATCHING, *_TAMPERING):
                for name in _changed(how, _named(first, names), first, rest, more):
                    if name.startswith(_OURS):
                        yield name
                    elif re.search(r"\._(?!_)\w+$", name) and how in ("setattr", "delattr"):
                        yield f".{name.rpartition('.')[2]}"
            case ast.Assign(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Attribute):
                        name = _named(target, names)
                        if name.startswith(_OURS):
                            yield name


def _changed(
    how: str, owner: str, first: ast.expr, rest: list[ast.expr], more: list[ast.keyword]
) -> Iterator[str]:
    """What a call that patches changes, by what it is given."""
    if how in _OF_ITEMS or isinstance(first, ast.Constant):
        yield owner
    elif how == "multiple":
        yield from (f"{owner}.{each.arg or '*'}" for each in more)
    else:
        match rest:
            case [ast.Constant(value=str(attribute)), *_]:
                yield f"{owner}.{attribute}"
            case _:
                yield f"{owner}.*"


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What the names that a module imports stand for."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield (
                        alias.asname or alias.name.partition(".")[0],
                        (alias.name if alias.asname else alias.name.partition(".")[0]),
                    )
            case ast.ImportFrom(module=str(base), names=names):
                yield from ((alias.asname or alias.name, f"{base}.{alias.name}") for alias in names)


def _named(node: ast.expr, names: dict[str, str]) -> str:
    """The full name of what an expression stands for, "" if that is not a plain one."""
    match node:
        case ast.Constant(value=str(name)):
            return name
        case ast.Name(id=name):
            return names.get(name, "")
        case ast.Attribute(value=value, attr=name):
            return f"{_named(value, names)}.{name}"
    return ""


def may_be_patched(name: str) -> bool:
    """Whether it is a public constant, such as a limit or a path, or a module of Python's own."""
    last = name.rpartition(".")[2]
    if last in sys.stdlib_module_names:
        return isinstance(pkgutil.resolve_name(name), ModuleType)
    return last.isupper() and not last.startswith("_")


def refused(path: str, source: str) -> set[str]:
    """What a module of tests patches and may not."""
    names = set(patched(source))
    if path == TAMPERED:
        return {name for name in names if "._" in name.replace(".__init__", "")}
    return {name for name in names if not may_be_patched(name)} - BORDERS.keys()


def test_no_insides_are_patched() -> None:
    names = {path: refused(path, source) for path, source in modules(["tests"]).items()}
    assert {path: sorted(those) for path, those in names.items() if those} == {}


def test_each_border_is_patched_somewhere() -> None:
    sources = modules(["tests"]).items()
    assert BORDERS.keys() <= {
        name for path, source in sources if path != TAMPERED for name in patched(source)
    }


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        ("ebpfprof.a.MOST", True),
        ("ebpfprof.kernel.clock.time", True),
        ("ebpfprof.server.goroutines.profile", False),  # Python has a module of that name
        ("ebpfprof.a._MOST", False),
        ("._MOST", False),
    ],
)
def test_constants_and_modules_of_python_may_be_patched(name: str, may_be: bool) -> None:
    assert may_be_patched(name) is may_be


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("monkeypatch.setattr(b, '_x', 1)", ["ebpfprof.a.b._x"]),
        ("monkeypatch.setattr(C, 'method', 1)", ["ebpfprof.a.C.method"]),
        ("monkeypatch.setattr(b, name, 1)", ["ebpfprof.a.b.*"]),
        ("monkeypatch.setattr('symbolizer.x._Y', 1)", ["symbolizer.x._Y"]),
        ("monkeypatch.setitem(b._kinds, 'cpu', 1)", ["ebpfprof.a.b._kinds"]),
        ("mock.patch.object(b, 'f')", ["ebpfprof.a.b.f"]),
        ("mock.patch('ebpfprof.a.f')", ["ebpfprof.a.f"]),
        ("mock.patch.multiple(b, f=1, g=2)", ["ebpfprof.a.b.f", "ebpfprof.a.b.g"]),
        ("mock.patch.multiple(b, **names)", ["ebpfprof.a.b.*"]),
        ("tamper(C, 'method', f)", ["ebpfprof.a.C.method"]),
        ("setattr(C, 'method', f)", ["ebpfprof.a.C.method"]),
        ("b.f = lambda: 1", ["ebpfprof.a.b.f"]),
        ("monkeypatch.setattr(an_object, '_x', 1)", ["._x"]),
        ("monkeypatch.setattr(an_object, 'x', 1)", []),
        ("monkeypatch.setattr(os, 'open', 1)", []),
        ("os.open = 1", []),
        ("an_object.x = 1", []),
        ("setattr(message, name, 1)", []),
    ],
)
def test_patches_are_found(line: str, names: list[str]) -> None:
    source = f"import os\nfrom ebpfprof.a import b, C\n{line}\n"
    assert list(patched(source)) == names
