"""The rooms of the code, and which import which: counted.

    python -m tests.tools.rooms [FOLDER]

FOLDER is a checkout, this one if none is named. Prints how many modules, rooms and levels there
are, and how many imports between modules stay within a room. tests/unit/house/test_layers.py holds
the imports to its table.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache, partial
from pathlib import Path

from ebpfprof.profilers.registry import kinds

ROOT = Path(__file__).parents[2]
# They import the modules that kinds name: as profilers, readers for endpoints, coverages.
BY_KIND = "ebpfprof.recording.loaded_profilers"
READS = "ebpfprof.server.read_endpoint"
BY_COVERAGE = "ebpfprof.ring.account"
# It imports again, in another process, what its callers import.
IN_CHILDREN = "ebpfprof.system.lean_start"
REGISTRY = "ebpfprof.profilers.registry"
# Their packages are rooms of their own.
SPLIT = ("profilers", "goruntime")
# What kinds of profile are is declared in the folders of what records them, and imports no more
# than the registry does: these modules are one room.
DECLARATIONS = re.compile(r"ebpfprof\.profilers\.(\w+\.kinds?|registry)")

Graph = Mapping[str, frozenset[str]]


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
                # "from ebpfprof.kernel import program" imports a module, too.
                yield from (f"{base}.{alias.name}" for alias in names)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[argument, *_]):
                if name in ("__import__", "import_module"):
                    yield from _imported(argument, module)


def _imported(argument: ast.expr, module: str) -> Iterable[str]:
    """What an import by name imports: of "package.{name}", the package."""
    if module == BY_KIND:
        return [kind.loader.module for kind in kinds()]
    if module == IN_CHILDREN:
        return []
    if module == READS:
        return [each.endpoint.reader for each in kinds() if each.endpoint and each.endpoint.reader]
    if module == BY_COVERAGE:
        return [kind.coverage.partition(":")[0] for kind in kinds() if kind.coverage]
    if isinstance(argument, ast.JoinedStr):
        argument, *_ = argument.values
        assert isinstance(argument, ast.Constant), f"{module}: a computed import"
        assert str(argument.value).endswith("."), f"{module}: a computed import"
        return [str(argument.value)[:-1]]
    assert isinstance(argument, ast.Constant), f"{module}: a computed import"
    return [str(argument.value)]


@cache
def graph(root: Path = ROOT) -> Graph:
    """Each module of the two packages, with all it imports."""
    found = {}
    for package in ("ebpfprof", "symbolizer"):
        for path in (root / package).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            module = ".".join(parts[:-1] if is_package else parts)
            names = imports(path.read_text(), module, is_package=is_package)
            found[module] = frozenset(names)
    return found


def room_of(module: str, rooms: Iterable[str]) -> str:
    """The room that a module stands in: the longest name that it begins with. "" if none."""
    if DECLARATIONS.fullmatch(module):
        return REGISTRY
    fitting = (room for room in rooms if module == room or module.startswith(room + "."))
    return max(fitting, key=len, default="")


def folders(modules: Graph) -> set[str]:
    """The packages that modules lie in; modules at the top of a package are rooms of their own.

    A package in a package is one room with it, except in profilers and goruntime.
    """
    tops = {"ebpfprof", "symbolizer"}
    found = {module.rpartition(".")[0] or module for module in modules} - tops
    found = {name for name in found if name.count(".") == 1 or name.split(".")[1] in SPLIT}
    return found | {module for module in modules if module.rpartition(".")[0] in tops}


def arrows(modules: Graph, room: Callable[[str], str]) -> dict[str, set[str]]:
    """Which rooms each room imports from; `room` shows that of a module."""
    found = defaultdict[str, set[str]](set)
    for module, names in modules.items():
        there = {room(name) for name in names & modules.keys()}
        found[room(module)] |= there - {room(module), ""}
    return found


def circles(between: Mapping[str, Iterable[str]]) -> list[str]:
    """Names that lead to themselves by way of others."""
    found = []
    for room in between:
        waiting, seen = list(between[room]), set[str]()
        while waiting:
            name = waiting.pop()
            if name == room:
                found.append(room)
                break
            if name not in seen:
                seen.add(name)
                waiting += between.get(name, ())
    return found


def levels(below: Mapping[str, AbstractSet[str]]) -> int:
    """How many names the longest chain has."""

    @cache
    def depth(name: str) -> int:
        return 1 + max((depth(each) for each in below.get(name, ())), default=0)

    return max(map(depth, below))


def within(modules: Graph, room: Callable[[str], str]) -> tuple[int, int]:
    """How many imports between modules there are, and how many of them stay in a room."""
    packages = {module.rpartition(".")[0] for module in modules}
    # The import of a package beside that of its module is not one of its own.
    pairs = [
        (module, name) for module in modules for name in modules[module] & modules.keys() - packages
    ]
    return len(pairs), sum(room(one) == room(other) for one, other in pairs)


def main() -> None:
    """Print the numbers of a checkout."""
    modules = graph(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    for package in ("ebpfprof", "symbolizer"):
        own = {name: found for name, found in modules.items() if name.split(".")[0] == package}
        rooms = folders(own)
        room = partial(room_of, rooms=rooms)
        between = arrows(own, room)
        count, inside = within(own, room)
        has_circle = bool(circles(between))
        print(
            f"{package}: {len(own)} modules in {len(rooms)} rooms, "
            f"{'in circles' if has_circle else f'on {levels(between)} levels'}; {count} imports "
            f"between modules, {inside} of them within a room; {sum(map(len, between.values()))} "
            "arrows between rooms"
        )


if __name__ == "__main__":
    main()
