"""What `ebpfprof agent --check` prints of settings."""

from __future__ import annotations

import pytest

from ebpfprof.agent.checking import as_toml
from ebpfprof.agent.settings_file import parsed


@pytest.mark.parametrize(
    "text",
    [
        "max_node_overhead = 1.23456789",
        "max_overhead = 1e-7",
        'min_age = "12.3456789s"',
        '[ring]\nmax_age = "12345678s"',
        "node = 'größe \U0001f600 \"x\" \\ '",
        'host_root = "/a\\u007f\\u202e\\n\\b"',
        "[[rules]]\ntarget = 'a'\nregex = '[\U0001f600\\d]+'",
    ],
)
def test_check_prints_odd_values_so_that_they_can_be_read_again(text: str) -> None:
    found = parsed(text, "a.toml")
    shown = as_toml(found)
    assert parsed(shown, "b.toml") == found
    assert all(line.isprintable() for line in shown.splitlines())
