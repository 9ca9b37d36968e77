"""The data about runtimes: equal to real toolchains, and to the assumptions of the code."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from bisect import bisect

import pytest

from ebpfprof.kernel import c_facts
from symbolizer import FuncRole, GoVersion, UnsupportedGoVersion, layout_for
from symbolizer.go import inline, pclntab
from tests.builds import versions
from tests.toolchains import MINORS, toolchain
from tests.tools.generate_goruntime import (
    OUTPUT,
    ROOT,
    describe,
    experiments,
    of_patch,
    patch_of,
    render,
)
from tests.tools.goruntime_fields import FIELDS

STORED = json.loads(OUTPUT.read_text())


@pytest.mark.machine
@pytest.mark.parametrize("minor", versions())
def test_the_stored_layout_equals_the_toolchains(minor: str) -> None:
    found, entry = describe(toolchain(minor).goroot)
    stored = of_patch(STORED[minor], patch_of(entry))
    del stored["experiments"]
    assert found == minor
    assert entry | {"toolchain": ""} == stored | {"toolchain": ""}


def test_patch_releases_with_another_layout_have_their_own_offsets() -> None:
    """Up to 1.25.3 the address in the data of epoll has one bit less, up to 1.17.6 pollDesc."""
    old, new = (layout_for(GoVersion.parse(f"go1.25.{patch}")) for patch in (3, 4))
    assert old.poll_data_shifts == (25, 9)
    assert new.poll_data_shifts == layout_for(GoVersion.parse("go1.25.99")).poll_data_shifts
    assert new.poll_data_shifts != old.poll_data_shifts
    offsets = [
        layout_for(GoVersion.parse(f"go{version}")).offset("pollDesc", "rg")
        for version in ("1.17", "1.17.6", "1.17.13")
    ]
    assert offsets == [40, 40, 24]


@pytest.mark.full
@pytest.mark.parametrize("minor", [MINORS[-1]])
def test_the_stored_experiments_equal_the_toolchains(minor: str) -> None:
    """Each takes a build of the runtime, so the other versions are left to the generator."""
    found = experiments(toolchain(minor), STORED[minor]["structs"])
    assert found == STORED[minor]["experiments"]


def test_the_stored_file_equals_the_generators_output() -> None:
    assert render(STORED) == OUTPUT.read_text()
    assert tuple(STORED) == MINORS


def test_every_field_is_in_some_version() -> None:
    """The generator leaves out what a version lacks: so also a name that is misspelt."""
    rows = [(name, row) for entry in STORED.values() for name, row in entry["structs"].items()]
    found = {(name, field) for name, row in rows for field in row["fields"]}
    assert [each for each in named_fields() if each not in found] == []


def named_fields() -> list[tuple[str, str]]:
    return [(struct, field) for struct, fields in FIELDS.items() for field in fields]


@pytest.mark.parametrize("minor", MINORS)
def test_every_size_class_has_its_counter(minor: str) -> None:
    """The sizes come from a source file, the length of the runtime's counters from DWARF."""
    layout = layout_for(GoVersion.parse(f"go{minor}"))
    first, behind = (
        layout.offset("heapStatsDelta", name) for name in ("smallAllocCount", "largeFree")
    )
    sizes = layout.size_classes
    assert len(sizes) == (behind - first) // 8
    assert sizes[:2] == (0, 8)
    assert sizes[-1] == 32 << 10
    assert list(sizes) == sorted(set(sizes))


@pytest.mark.parametrize("minor", MINORS)
def test_every_function_id_has_a_role(minor: str) -> None:
    layout = layout_for(GoVersion.parse(f"go{minor}"))
    numbers = STORED[minor]["func_ids"]
    assert sorted(numbers.values()) == list(range(len(layout.roles)))
    assert layout.role(numbers["wrapper"]) is FuncRole.WRAPPER
    assert layout.role(numbers["goexit"]) is FuncRole.GOEXIT
    assert layout.role(numbers["normal"]) is FuncRole.NORMAL
    assert layout.role(255) is FuncRole.NORMAL
    assert layout.role(-1) is FuncRole.NORMAL


def test_only_panics_keep_the_wrapper_that_called_them() -> None:
    keep = {role for role in FuncRole if not role.elides_wrapper}
    assert keep == {FuncRole.GOPANIC, FuncRole.SIGPANIC, FuncRole.PANICWRAP}


@pytest.mark.parametrize("minor", MINORS)
def test_layouts_in_the_code_equal_the_data(minor: str) -> None:
    layout = layout_for(GoVersion.parse(f"go{minor}"))
    func = pclntab._FORMATS.get(layout.pclntab_magic, pclntab._FUNC_1_20)
    old = func is not pclntab._FUNC_1_20
    node = inline._NODE_1_18 if old else inline._NODE_1_20
    padding = 4 if minor == "1.17" else 0  # the record has an address
    assert layout.size("_func") == func.size + padding
    assert layout.size("inlinedCall") == node.size
    assert STORED[minor]["pcdata_inl_tree_index"] == pclntab._PCDATA_INL_TREE_INDEX
    assert STORED[minor]["funcdata_inl_tree"] == pclntab._FUNCDATA_INL_TREE
    words = ("pcHeader", "funcnametab", "cutab", "filetab", "pctab", "pclntable", "ftab")
    offsets = [layout.offset("moduledata", name) for name in (*words, "minpc", "text", "etext")]
    assert offsets == [0, 8, 32, 56, 80, 104, 128, 160, 176, 184]


@pytest.mark.parametrize("minor", MINORS)
def test_recorded_stacks_by_version(minor: str) -> None:
    number = int(minor.removeprefix("1."))
    stacks = layout_for(GoVersion.parse(f"go{minor}")).profile_stacks
    assert stacks.max_depth == (32 if number <= 22 else 128)
    assert stacks.unwinds_by_tables == (number <= 22)
    # The first release that records the runtime's own locks is 1.22; 1.27 has no sentinel there.
    assert stacks.runtime_lock_depth == (0, 32, 127, 128)[bisect((22, 23, 27), number)]


@pytest.mark.parametrize("minor", MINORS)
def test_storage_of_labels_by_version(minor: str) -> None:
    layout = layout_for(GoVersion.parse(f"go{minor}"))
    assert layout.labels_in_slice == (int(minor.removeprefix("1.")) >= 24)


@pytest.mark.parametrize("text", [*(f"go{minor}" for minor in MINORS), "go1.99"])
def test_the_magic_number_of_pclntab_by_version(text: str) -> None:
    version = GoVersion.parse(text)
    layout = layout_for(version, allow_unknown_version=True)
    formats = (pclntab.GO_1_16, pclntab.GO_1_18, pclntab.GO_1_20)
    expected = formats[bisect((18, 20), version.minor)]
    assert layout.pclntab_magic == expected


def test_no_code_compares_versions() -> None:
    """Differences between versions are in the data, or are read from the program."""
    folders = ("symbolizer", "ebpfprof/goruntime", "ebpfprof/profilers")
    compared = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        and any(isinstance(each, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for each in node.ops)
        and re.search(r"\bminor\b", ast.unparse(node))
    ]
    assert compared == []


def test_lookups_in_a_layout() -> None:
    layout = layout_for(GoVersion.parse("go1.27.3"))
    assert layout.version == "1.27"
    assert layout.offset("g", "sched.pc") == 64
    assert layout.size("g") == 456
    assert layout.has("g", "bubble")
    assert not layout_for(GoVersion.parse("go1.24")).has("g", "bubble")
    with pytest.raises(KeyError):
        layout.offset("g", "nosuchfield")
    with pytest.raises(dataclasses.FrozenInstanceError):
        layout.version = "1.28"  # type: ignore[misc]  # it must fail


@pytest.mark.parametrize("text", ["go1.28.0", "devel go1.27-abcdef"])
def test_unknown_versions_are_named_with_the_known_range(text: str) -> None:
    with pytest.raises(UnsupportedGoVersion) as caught:
        layout_for(GoVersion.parse(text))
    assert text in str(caught.value)
    assert "go1.17 to go1.27" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("go1.99", "1.27"), ("devel go1.26-abc", "1.26")],
)
def test_the_nearest_layout_is_used_if_allowed(text: str, nearest: str) -> None:
    assert layout_for(GoVersion.parse(text), allow_unknown_version=True).version == nearest


@pytest.mark.parametrize("is_allowed", [False, True])
@pytest.mark.parametrize("text", ["go1.16.15", "go1.11", "devel go1.16-abcdef"])
def test_versions_that_pass_arguments_on_the_stack_are_refused(text: str, is_allowed: bool) -> None:
    with pytest.raises(UnsupportedGoVersion, match=r"Go 1\.17 or newer is needed") as caught:
        layout_for(GoVersion.parse(text), allow_unknown_version=is_allowed)
    assert not caught.value.can_be_tried


@pytest.mark.parametrize("minor", MINORS)
def test_one_read_of_a_goroutine_includes_its_labels(minor: str) -> None:
    """goroutine_stack.h, start_here: one read of up to G_WORDS words, taken modulo that."""
    words = c_facts.number("probes/goroutine_stack.h", "G_WORDS")
    layout = layout_for(GoVersion.parse(f"go{minor}"))
    assert layout.offset("g", "stack.lo") == 0
    assert layout.offset("g", "labels") + 8 < 8 * words
