"""Which labels the kernel can choose by their keys."""

from __future__ import annotations

import pytest

from ebpfprof.goruntime.goroutines.labels import CUT, LEFT_OUT
from ebpfprof.profilers.labels import key_hashes


def test_each_key_has_its_own_hash() -> None:
    keys = ("", "a", "b", "ab", "a\0", "k" * 31, "k" * 32, "k" * 33, "k" * 64, "é")
    assert len(set(key_hashes(keys))) == len(keys)
    assert [key_hashes((key,)) for key in keys] == [(found,) for found in key_hashes(keys)]


@pytest.mark.parametrize(
    "keys", [None, (), ("a", "k" * 64 + CUT), ("k" * 65,), ("a", "\\xff"), ("a", LEFT_OUT)]
)
def test_keys_that_are_shown_changed_have_no_hashes(keys: tuple[str, ...] | None) -> None:
    assert key_hashes(keys) == ()
