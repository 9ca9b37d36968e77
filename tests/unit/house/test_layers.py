"""The import rules of ARCHITECTURE.md: which room may import which, and no circle anywhere.

An import inside a function or behind TYPE_CHECKING counts like any other.
"""

import re
from itertools import takewhile

import pytest

from tests.tools import rooms
from tests.tools.rooms import ROOT, Graph, circles, folders, graph, imports

# From the top down: what a room may import, besides itself. All may import `errors`.
ROOMS = {
    "__main__": "commands console system",
    "commands": "server top continuous recording profilers discovery process kernel export "
    "overhead privileges profile console system",
    "server": "continuous discovery process kernel export overhead profile console system",
    "top": "recording profilers kernel export profile console",
    "continuous": "profilers discovery process kernel overhead profile console",
    "recording": "profilers.waits profilers.cpu profilers profilers.registry goruntime overhead "
    "process kernel privileges profile console system",
    "profilers.waits": "profilers profilers.registry goruntime overhead process kernel profile "
    "console",
    "profilers.cpu": "profilers profilers.registry goruntime overhead process kernel privileges "
    "profile console",
    "profilers": "profilers.registry goruntime overhead process kernel profile console",
    "goruntime": "process profile console",
    "overhead": "console",
    "process": "kernel privileges profile console system",
    "discovery": "privileges console system",
    "kernel": "privileges system",
    "export": "profile console",
    "profilers.registry": "profile",
    "privileges": "",
    "profile": "",
    "console": "system",
    "system": "",
    "errors": "",
}
RULES = {f"ebpfprof.{room}": allowed.split() for room, allowed in ROOMS.items()}


def room_of(module: str) -> str:
    """The room of a module of ebpfprof; "" if it has none."""
    return rooms.room_of(module, RULES)


def arrows(modules: Graph) -> dict[str, set[str]]:
    """Which rooms each room imports from."""
    return rooms.arrows(modules, room_of)


def faults(modules: Graph) -> list[str]:
    """The imports that the rules don't allow."""
    found = []
    for module in sorted(modules):
        here = room_of(module)
        allowed = {f"ebpfprof.{name}" for name in (*RULES.get(here, ()), "errors")} | {here, ""}
        names = sorted(modules[module] & modules.keys())
        found += [f"{module} -> {name}" for name in names if room_of(name) not in allowed]
    return found


def test_every_module_has_a_room() -> None:
    ours = {name for name in graph() if name.startswith("ebpfprof.")}
    assert [name for name in sorted(ours) if not room_of(name)] == []
    assert [room for room in RULES if not any(room_of(name) == room for name in ours)] == []


def test_imports_keep_to_the_rules() -> None:
    assert faults(graph()) == []


def test_the_rules_have_nothing_that_is_not_needed() -> None:
    ours = {name: found for name, found in graph().items() if name.startswith("ebpfprof.")}
    between = arrows(ours)
    assert {
        room: sorted(set(allowed) - {name.removeprefix("ebpfprof.") for name in between[room]})
        for room, allowed in RULES.items()
        if set(allowed) - {name.removeprefix("ebpfprof.") for name in between[room]}
    } == {}


def test_rooms_form_no_circle() -> None:
    assert circles(arrows(graph())) == []

    def by_folder(module: str) -> str:
        return rooms.room_of(module, folders(symbolizer))

    symbolizer = {name: found for name, found in graph().items() if name.startswith("symbolizer.")}
    assert circles(rooms.arrows(symbolizer, by_folder)) == []


def test_no_module_imports_itself_in_a_circle() -> None:
    modules = graph()
    assert circles({name: set(found & modules.keys()) for name, found in modules.items()}) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]


def test_an_import_that_is_not_allowed_is_found() -> None:
    modules = {
        "ebpfprof.kernel.program": frozenset({"ebpfprof.recording.session", "os"}),
        "ebpfprof.recording.session": frozenset({"ebpfprof.kernel.program", "ebpfprof.errors"}),
        "ebpfprof.errors": frozenset[str](),
    }
    assert faults(modules) == ["ebpfprof.kernel.program -> ebpfprof.recording.session"]


def test_the_symbolizer_stands_alone() -> None:
    outside = [
        f"{module} -> {name}"
        for module, names in graph().items()
        if module.startswith("symbolizer")
        for name in names
        if name.split(".")[0] in ("ebpfprof", "bcc")
    ]
    assert outside == []


def test_only_the_compiler_imports_bcc() -> None:
    users = {
        module for module, names in graph().items() if any(n.split(".")[0] == "bcc" for n in names)
    }
    assert users == {"ebpfprof.kernel.compiler"}


def test_architecture_has_the_rooms_in_this_order() -> None:
    lines = (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    first = lines.index("| room | job |") + 2
    rows = takewhile(lambda line: line.startswith("|"), lines[first:])
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert [name.rstrip("/").replace("/", ".") for name in names] == list(ROOMS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import bcc", {"bcc"}),
        ("import bcc.table as t, os", {"bcc.table", "os"}),
        ("from bcc import BPF", {"bcc", "bcc.BPF"}),
        ("def f():\n    if x:\n        import bcc", {"bcc"}),
        ("if TYPE_CHECKING:\n    from bcc import BPF", {"bcc", "bcc.BPF"}),
        ("importlib.import_module('bcc')", {"bcc"}),
        ("import_module('bcc')", {"bcc"}),
        ("__import__('bcc')", {"bcc"}),
        ("from . import folded", {"ebpfprof.export", "ebpfprof.export.folded"}),
        ("from .. import errors", {"ebpfprof", "ebpfprof.errors"}),
        ("from ..errors import ExitCode", {"ebpfprof.errors", "ebpfprof.errors.ExitCode"}),
        ("x = 'import bcc'  # import bcc", set()),
    ],
)
def test_every_way_to_import_is_seen(source: str, expected: set[str]) -> None:
    assert set(imports(source, "ebpfprof.export.formats")) == expected


def test_relative_imports_of_a_package_start_from_itself() -> None:
    assert set(imports("from . import x", "ebpfprof.export", is_package=True)) == {
        "ebpfprof.export",
        "ebpfprof.export.x",
    }
