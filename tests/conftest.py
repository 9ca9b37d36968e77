"""What holds for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ebpfprof.capabilities import effective


@pytest.fixture(autouse=True)
def rights_of_the_tests() -> Iterator[None]:
    """Rights that a verb gives up are gone for good, and for all tests that come later."""
    before = effective()
    yield
    assert effective() == before, "run the verb in a process of its own"


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A name for a parameter; None leaves it to pytest.

    Bytes may have been made just now, with the time in them, as by gzip: those who run tests side
    by side would not know them by the same names.
    """
    return argname if isinstance(val, bytes) else None
