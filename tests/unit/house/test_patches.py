"""Tests of a module by itself go through its parameters: they don't patch its insides."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from tests.unit.house.test_names import modules

BORDERS = {
    "ebpfprof.kernel.packaged_programs.folder": "where an installed package has its files",
    "ebpfprof.kernel.perf_events.may_open_events": "the kernel's answer, which differs by version",
    "ebpfprof.kernel.program_source.program_text": "the files of bpf/",
    "ebpfprof.kernel.uprobe_links.is_offered": "the kernel's answer, which differs by version",
    "ebpfprof.process.control_groups.ControlGroup.read": "the kernel's numbers of a group",
    "ebpfprof.process.control_groups.ControlGroups.of": "the group that the kernel has it in",
    "ebpfprof.process.process.Target.__init__": "to see that no process is opened",
    "ebpfprof.recording.live.LoadedProfilers": "to see that no BPF program is loaded",
    "ebpfprof.timeline.waitgraph.wait_graph": "to count how often it is called",
    "symbolizer.codeanalysis.semaphores.reachable": "to count how often it is called",
}
"""Functions of ours that tests patch, each with the reason why no parameter can do the same."""

_PATCHING = ("setattr", "delattr", "setitem", "delitem", "object", "patch")


def patched(source: str) -> Iterator[str]:
    """The names in ebpfprof and symbolizer that a module of tests patches; * for computed ones."""
    tree = ast.parse(source)
    names = dict(_imported(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=how) | ast.Name(id=how), args=[first, *rest]):
                if how not in _PATCHING or (how == "setattr" and isinstance(node.func, ast.Name)):
                    continue
                name = _named(first, names)
                if how not in ("setitem", "delitem") and not isinstance(first, ast.Constant):
                    match rest:
                        case [ast.Constant(value=str(attribute)), *_]:
                            name += f".{attribute}"
                        case _:
                            name += ".*"
                if name.startswith(("ebpfprof.", "symbolizer.")):
                    yield name


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
    is_constant = last.isupper() and not last.startswith("_")
    return is_constant or last in sys.stdlib_module_names


def test_no_insides_are_patched() -> None:
    names = {
        path: {name for name in patched(source) if not may_be_patched(name)} - BORDERS.keys()
        for path, source in modules(["tests/unit"]).items()
    }
    assert {path: sorted(those) for path, those in names.items() if those} == {}


def test_each_border_is_patched_somewhere() -> None:
    sources = modules(["tests/unit"]).values()
    assert BORDERS.keys() <= {name for source in sources for name in patched(source)}


@pytest.mark.parametrize(
    ("name", "may_be"),
    [("ebpfprof.a.MOST", True), ("ebpfprof.a.time", True), ("ebpfprof.a._MOST", False)],
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
        ("monkeypatch.setattr(os, 'open', 1)", []),
        ("setattr(message, name, 1)", []),
    ],
)
def test_patches_are_found(line: str, names: list[str]) -> None:
    source = f"import os\nfrom ebpfprof.a import b, C\n{line}\n"
    assert list(patched(source)) == names
