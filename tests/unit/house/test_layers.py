"""The import rules of ARCHITECTURE.md: which room may import which, and no circle anywhere.

An import inside a function or behind TYPE_CHECKING counts like any other.
"""

import re
from functools import partial
from itertools import takewhile

import pytest

from tests.tools import rooms
from tests.tools.rooms import ROOT, Graph, circles, graph, imports, levels, room_of

# From the top down: what a room may import, besides itself. All may import `errors`.
ROOMS = {
    "__main__": "commands console system",
    "commands": "agent server top continuous tracing observing recording ring profilers.heap "
    "profilers findings goruntime.references goruntime.waits goruntime.goroutines goruntime.heap "
    "goruntime discovery process kernel export profilers.registry overhead privileges timeline "
    "profile settings console system",
    "agent": "server continuous ring discovery kernel findings export profilers.registry profile "
    "settings console system",
    "server": "observing continuous profilers.goroutines profilers.heap goruntime.waits "
    "goruntime.goroutines goruntime.heap goruntime discovery process kernel export "
    "profilers.registry overhead privileges findings profile settings console system",
    "top": "tracing recording profilers export profilers.registry profile console system",
    "continuous": "profilers discovery process profilers.registry overhead profile console",
    "tracing": "profilers.cpu profilers goruntime.waits goruntime.goroutines goruntime.heap "
    "goruntime overhead process kernel timeline profile console system",
    "observing": "recording profilers.heap profilers goruntime.waits goruntime.goroutines "
    "goruntime.heap goruntime process kernel findings profile system",
    "recording": "profilers.waits profilers.goroutines profilers.heap profilers.cpu profilers "
    "profilers.registry goruntime.samples goruntime.waits goruntime.goroutines goruntime overhead "
    "process kernel privileges profile console system",
    "ring": "profilers.waits profilers.heap profilers export profilers.registry overhead profile "
    "console system",
    "profilers.waits": "profilers profilers.registry goruntime.samples goruntime.waits "
    "goruntime.goroutines goruntime.heap goruntime overhead process kernel profile console system",
    "profilers.goroutines": "profilers profilers.registry goruntime.samples goruntime.goroutines "
    "goruntime overhead profile",
    "profilers.heap": "profilers profilers.registry goruntime.heap goruntime overhead process "
    "kernel profile console system",
    "profilers.cpu": "profilers profilers.registry goruntime.goroutines goruntime overhead process "
    "kernel privileges profile console system",
    "profilers": "profilers.registry goruntime.samples goruntime.goroutines goruntime overhead "
    "process kernel profile console system",
    "goruntime.samples": "goruntime.waits goruntime.goroutines goruntime process kernel profile "
    "system",
    "goruntime.waits": "goruntime.goroutines goruntime.heap goruntime process profile",
    "goruntime.references": "goruntime.goroutines goruntime.heap goruntime process profile system",
    "goruntime.goroutines": "goruntime process profile",
    "goruntime.heap": "goruntime process profile console",
    "goruntime": "process profile console",
    "overhead": "console",
    "process": "kernel privileges profile console system",
    "discovery": "privileges console system",
    "kernel": "privileges system",
    "export": "profilers.registry findings timeline profile console",
    "profilers.registry": "profile settings",
    "privileges": "",
    "findings": "profile console",
    "timeline": "profile",
    "profile": "settings",
    "settings": "console",
    "console": "system",
    "system": "",
    "errors": "",
}
SYMBOLIZER_ROOMS = {
    "codeanalysis": "go x86 elf",
    "locks": "go dwarf elf",
    "native": "dwarf elf frames",
    "unwind": "go dwarf elf x86 frames",
    "go": "elf x86 frames",
    "dwarf": "elf allowance",
    "elf": "allowance",
    "x86": "",
    "allowance": "",
    "frames": "",
    "errors": "",
}
PACKAGES = {"ebpfprof": ROOMS, "symbolizer": SYMBOLIZER_ROOMS}
Rules = dict[str, list[str]]


def rules_of(package: str) -> Rules:
    """What each room of a package may import, all by their full names."""
    return {
        f"{package}.{room}": [f"{package}.{name}" for name in (*allowed.split(), "errors")]
        for room, allowed in PACKAGES[package].items()
    }


def modules_of(package: str) -> Graph:
    """The modules of a package, without the package itself (its __init__)."""
    return {name: found for name, found in graph().items() if name.startswith(f"{package}.")}


def arrows(modules: Graph, rules: Rules) -> dict[str, set[str]]:
    """Which rooms each room imports from."""
    return rooms.arrows(modules, partial(room_of, rooms=rules))


def faults(modules: Graph, rules: Rules) -> list[str]:
    """The imports that the rules don't allow."""
    found = []
    for module in sorted(modules):
        here = room_of(module, rules)
        allowed = {*rules.get(here, ()), here, ""}
        names = sorted(modules[module] & modules.keys())
        found += [f"{module} -> {name}" for name in names if room_of(name, rules) not in allowed]
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_has_a_room(package: str) -> None:
    ours, rules = modules_of(package), rules_of(package)
    assert [name for name in sorted(ours) if not room_of(name, rules)] == []
    assert [room for room in rules if not any(room_of(name, rules) == room for name in ours)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_keep_to_the_rules(package: str) -> None:
    assert faults(modules_of(package), rules_of(package)) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_allowed_import_is_used(package: str) -> None:
    rules = rules_of(package)
    between = arrows(modules_of(package), rules)
    errors = f"{package}.errors"
    unused = {room: {*allowed} - between[room] - {errors} for room, allowed in rules.items()}
    assert {room: names for room, names in unused.items() if names} == {}


def test_top_level_packages_are_not_imported_from_within() -> None:
    assert graph()["ebpfprof"] & graph().keys() == set()
    assert [name for name, found in modules_of("symbolizer").items() if "symbolizer" in found] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_form_no_circle(package: str) -> None:
    assert circles(arrows(modules_of(package), rules_of(package))) == []


def test_the_rooms_of_the_symbolizer_have_five_levels() -> None:
    between = arrows(modules_of("symbolizer"), rules_of("symbolizer"))
    assert levels({room: frozenset(between[room]) for room in rules_of("symbolizer")}) == 5


def test_modules_form_no_circle() -> None:
    modules = graph()
    assert circles({name: set(found & modules.keys()) for name, found in modules.items()}) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("package", "below", "above"),
    [
        ("ebpfprof", "kernel.program", "recording.session"),
        ("symbolizer", "native.binary", "go.runtime_layout"),
        ("symbolizer", "frames", "go.binary"),
    ],
)
def test_an_import_that_is_not_allowed_is_found(package: str, below: str, above: str) -> None:
    below, above, errors = (f"{package}.{name}" for name in (below, above, "errors"))
    modules = {
        below: frozenset({above, "os"}),
        above: frozenset({errors}),
        errors: frozenset[str](),
    }
    assert faults(modules, rules_of(package)) == [f"{below} -> {above}"]


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


def test_architecture_md_lists_the_rooms_in_order() -> None:
    lines = (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    first = lines.index("| package | job |") + 2
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
def test_every_form_of_import_is_found(source: str, expected: set[str]) -> None:
    assert set(imports(source, "ebpfprof.export.formats")) == expected


def test_relative_imports_of_a_package_start_from_itself() -> None:
    assert set(imports("from . import x", "ebpfprof.export", is_package=True)) == {
        "ebpfprof.export",
        "ebpfprof.export.x",
    }
