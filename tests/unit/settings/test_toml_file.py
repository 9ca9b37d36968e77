"""TOML files: who may write them, and the line of each value."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebpfprof.errors import BadConfig
from ebpfprof.settings.toml_file import TomlFile, line_of, parsed, read_trusted
from ebpfprof.settings.values import NumberValue

_KEYS = st.sampled_from(["a", "b", '"c d"', "e.f"])
_VALUES = st.sampled_from(["1", "[\n  1,\n  2,\n]", '"""\nb = 3\n"""', "{ x = 1 }", "'#'"])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(_KEYS, _VALUES), unique_by=lambda pair: pair[0]), st.integers(0, 3))
def test_a_value_is_found_on_its_line(pairs: list[tuple[str, str]], blank: int) -> None:
    lines, begins = [], {}
    for key, value in pairs:
        lines += ["# b = 2"] * blank
        begins[key] = len("\n".join([*lines, ""]).splitlines()) + 1
        lines += f"{key} = {value}".splitlines()
    for key, line in begins.items():
        path = key.replace('"', "").split(".") if key == "e.f" else [key.strip('"')]
        assert line_of("\n".join(lines), path) == line


def trusted(path: Path, user: int | None = None) -> str:
    return read_trusted(os.open(path, os.O_RDONLY), "a.toml", os.getuid() if user is None else user)


@pytest.mark.parametrize("length", [0, 7, 64 << 10])
def test_a_file_of_the_user_is_read(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.toml"
    path.write_text("a" * length)
    path.chmod(0o664)
    assert trusted(path) == "a" * length


def test_a_file_that_others_can_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.touch()
    path.chmod(0o606)
    with pytest.raises(BadConfig, match=r"^a\.toml can be changed by all users: chmod o-w it\.$"):
        trusted(path)


def test_a_file_of_roots_is_read_for_each_user() -> None:
    assert trusted(Path("/etc/passwd"), user=12345)


@pytest.mark.parametrize("path", ["/etc", "/dev/null"])
def test_what_is_no_file_is_refused_and_closed(path: str) -> None:
    files = os.listdir("/proc/self/fd")
    with pytest.raises(BadConfig, match=r"^a\.toml is not a regular file\.$"):
        trusted(Path(path))
    assert os.listdir("/proc/self/fd") == files


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a" * ((64 << 10) + 1), "a.toml is longer than 64 KiB: shorten it."),
        (b"\n\n\xff\n", "a.toml:3: This is not UTF-8."),
        (b"\xff", "a.toml:1: This is not UTF-8."),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(data)
    path.chmod(0o644)
    with pytest.raises(BadConfig) as caught:
        trusted(path)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\n\nb = = 2\n", "a.toml:3: This is not TOML: Invalid value."),
        ("a = 1\na = 2\n", "a.toml:2: This key is in the file twice."),
        ("[a]\n[b]\n[a]\n", "a.toml:3: This table is in the file twice."),
        ("a = 1\nb = [\n", "a.toml:2: This is not TOML: Invalid value."),
        ("a = " + "[" * 5000, "a.toml is nested too deeply."),
    ],
)
def test_what_is_no_toml_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parsed(text, "a.toml")
    assert str(caught.value) == message


FILE = parsed("[one]\nmost = 7\nlaest = 1\n[[many]]\nx = 1\n[[many]]\nx = 2\n", "a.toml")


def test_tables_of_a_file() -> None:
    assert FILE.table("one") == {"most": 7, "laest": 1}
    assert FILE.table("two") == {}
    assert FILE.list_of_tables("many") == [(("many", 0), {"x": 1}), (("many", 1), {"x": 2})]
    assert FILE.list_of_tables("few") == []
    assert FILE.place(("many", 1, "x")) == "a.toml:7"
    assert FILE.read(NumberValue(0, 9), 7, ("one", "most")) == 7


def names(file: TomlFile) -> None:
    file.require_known(["most", "laest"], ["most", "least"], ("one",), "There is no setting")


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda file: file.table("many"), "a.toml:4: many must be a table, [many]."),
        (
            lambda file: file.list_of_tables("one"),
            "a.toml:1: one must be tables, each below its own [[one]].",
        ),
        (
            lambda file: file.read(NumberValue(0, 5), 7, ("one", "most")),
            "a.toml:2: most must be a whole number from 0 to 5, not 7.",
        ),
        (names, "a.toml:3: There is no setting 'laest'. Did you mean least?"),
    ],
)
def test_a_mistake_in_a_file_has_its_line(read: Callable[[TomlFile], object], message: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read(FILE)
    assert str(caught.value) == message
