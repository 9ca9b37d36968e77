"""TOML files: the line of each value."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ebpfprof.settings.toml_file import line_of

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
