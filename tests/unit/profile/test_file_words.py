"""Files and connections, in words."""

from __future__ import annotations

import pytest

from ebpfprof.profile import file_words
from ebpfprof.profile.waiting_for import OpenFile


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (OpenFile(3, "file", path="/var/lib/shop.db"), "/var/lib/shop.db"),
        (OpenFile(4, "unix", path="/run/shop.sock"), "unix /run/shop.sock"),
        (OpenFile(5, "pipe"), "a pipe"),
    ],
)
def test_a_file_is_called_by_its_path_or_its_kind(file: OpenFile, words: str) -> None:
    assert file_words.kind(file) == words
