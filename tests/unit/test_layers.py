"""The import rules of ARCHITECTURE.md, enforced on the syntax trees of all modules.

An import inside a function or behind TYPE_CHECKING counts like any other.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What may know what: a module reaches only those of its own line or of a lower one.
LAYERS = (
    ("ebpfprof.cli", "ebpfprof.commands", "ebpfprof.server", "ebpfprof.__main__"),
    ("ebpfprof.live", "ebpfprof.session"),
    ("ebpfprof.collectors",),
    ("ebpfprof.loader", "ebpfprof.maps", "ebpfprof.compiler"),
)
# The model and the exporters: what a profile is, however it was taken.
MODEL = (
    "ebpfprof.profile",
    "ebpfprof.delta",
    "ebpfprof.idle",
    "ebpfprof.export",
    "ebpfprof.errors",
    "ebpfprof.text",
)


def is_in(module: str, packages: Iterable[str]) -> bool:
    """Whether `module` is one of `packages` or stands below one of them."""
    return any(module == package or module.startswith(package + ".") for package in packages)


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Absolute names of all that `source`, the text of `module`, imports, wherever it does."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                parents = module.split(".")
                if level:
                    kept = len(parents) - level + is_package
                    base = ".".join([*parents[:kept], *([base] if base else [])])
                assert base is not None
                yield base
                # "from ebpfprof import loader" imports a module, too.
                yield from (f"{base}.{alias.name}" for alias in names)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[argument, *_]):
                if name in ("__import__", "import_module"):
                    yield _imported(argument, module)


def _imported(argument: ast.expr, module: str) -> str:
    """What an import by name imports: of "package.{name}", the package."""
    if isinstance(argument, ast.JoinedStr):
        argument, *_ = argument.values
        assert isinstance(argument, ast.Constant), f"{module}: a computed import"
        assert str(argument.value).endswith("."), f"{module}: a computed import"
        return str(argument.value)[:-1]
    assert isinstance(argument, ast.Constant), f"{module}: a computed import"
    return str(argument.value)


@cache
def graph() -> dict[str, frozenset[str]]:
    """Each module of the two packages, with all it imports."""
    found = {}
    for package in ("ebpfprof", "symbolizer"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            module = ".".join(parts[:-1] if is_package else parts)
            names = imports(path.read_text(), module, is_package=is_package)
            found[module] = frozenset(names)
    return found


def reached(start: str, modules: dict[str, frozenset[str]]) -> dict[str, str]:
    """All modules that importing `start` may import, each with the chain that leads there."""
    chains = {start: start}
    waiting = [start]
    while waiting:
        module = waiting.pop()
        for name in modules[module] & modules.keys():
            if name not in chains:
                chains[name] = f"{chains[module]} -> {name}"
                waiting.append(name)
    return chains


def layer_faults(modules: dict[str, frozenset[str]]) -> list[str]:
    """The chains of imports that go up the layers."""
    faults = []
    for index, layer in enumerate(LAYERS):
        above = [name for higher in LAYERS[:index] for name in higher]
        for module in sorted(modules):
            if is_in(module, layer):
                chains = reached(module, modules)
                faults += [chain for name, chain in chains.items() if is_in(name, above)]
    return faults


def outsiders(modules: dict[str, frozenset[str]], inside: Iterable[str]) -> list[str]:
    """What the modules of `inside` import of the two packages and BCC, and is not of `inside`."""
    return [
        f"{module} -> {name}"
        for module in sorted(modules)
        if is_in(module, inside)
        for name in sorted(modules[module])
        if is_in(name, ("ebpfprof", "symbolizer", "bcc")) and not is_in(name, inside)
    ]


def ranks() -> dict[str, int]:
    """The modules of `ebpfprof` by their row in ARCHITECTURE.md."""
    lines = (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    first = lines.index("| module | job |") + 2
    rows = takewhile(lambda line: line.startswith("|"), lines[first:])
    found: dict[str, int] = {}
    for rank, row in enumerate(rows):
        for name in re.findall(r"`([^`]+)`", row.split("|")[1]):
            pattern = f"ebpfprof.{name.replace('/', '.')}"
            found |= {module: rank for module in graph() if fnmatchcase(module, pattern)}
    return found


def upwards(modules: dict[str, frozenset[str]], rank: dict[str, int]) -> list[str]:
    """The imports of a module by one that stands below it."""
    return [
        f"{module} -> {name}"
        for module in sorted(rank)
        for name in sorted(modules[module] & rank.keys())
        if rank[name] < rank[module]
    ]


def test_the_table_of_modules_is_whole_and_imports_run_down_it() -> None:
    packages = {
        f"ebpfprof{name}"
        for name in ("", ".collectors", ".commands", ".export", ".kernel", ".server")
    }
    assert set(ranks()) == {name for name in graph() if is_in(name, ["ebpfprof"])} - packages
    assert upwards(graph(), ranks()) == []


def test_an_import_up_the_table_is_found() -> None:
    modules = {"a": frozenset({"b"}), "b": frozenset({"a", "os"})}
    assert upwards(modules, {"a": 0, "b": 1}) == ["b -> a"]


def test_every_layer_has_modules() -> None:
    for layer in (*LAYERS, MODEL, ("symbolizer",)):
        assert [module for module in graph() if is_in(module, layer)], layer


def test_imports_run_down_the_layers() -> None:
    assert layer_faults(graph()) == []


def test_the_symbolizer_stands_alone() -> None:
    assert outsiders(graph(), ["symbolizer"]) == []


def test_the_model_and_the_exporters_know_nothing_of_how_a_profile_is_taken() -> None:
    assert outsiders(graph(), MODEL) == []


def test_only_the_compiler_imports_bcc() -> None:
    users = {module for module, names in graph().items() if any(is_in(n, ["bcc"]) for n in names)}
    assert users == {"ebpfprof.compiler"}


def test_no_module_imports_itself_in_a_circle() -> None:
    modules = graph()
    circles = [
        f"{chain} -> {module}"
        for module in sorted(modules)
        for name, chain in reached(module, modules).items()
        if module in modules[name]
    ]
    assert circles == []


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
        ("from . import loader", {"ebpfprof.export", "ebpfprof.export.loader"}),
        ("from .. import loader", {"ebpfprof", "ebpfprof.loader"}),
        ("from ..loader import Program", {"ebpfprof.loader", "ebpfprof.loader.Program"}),
        ("x = 'import bcc'  # import bcc", set()),
    ],
)
def test_every_way_to_import_is_seen(source: str, expected: set[str]) -> None:
    assert set(imports(source, "ebpfprof.export.pprof")) == expected


def test_relative_imports_of_a_package_start_from_itself() -> None:
    assert set(imports("from . import x", "ebpfprof.export", is_package=True)) == {
        "ebpfprof.export",
        "ebpfprof.export.x",
    }


def test_an_import_upwards_is_found_through_other_modules() -> None:
    modules = {
        "ebpfprof.cli": frozenset({"ebpfprof.session"}),
        "ebpfprof.session": frozenset({"ebpfprof.loader"}),
        "ebpfprof.loader": frozenset({"ebpfprof.helper", "os"}),
        "ebpfprof.helper": frozenset({"ebpfprof.session"}),
    }
    assert layer_faults(modules) == ["ebpfprof.loader -> ebpfprof.helper -> ebpfprof.session"]


def test_an_exporter_that_imports_a_target_is_found() -> None:
    modules = {"ebpfprof.export.x": frozenset({"ebpfprof.target", "ebpfprof.profile", "rich"})}
    assert outsiders(modules, MODEL) == ["ebpfprof.export.x -> ebpfprof.target"]
