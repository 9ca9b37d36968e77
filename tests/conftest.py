"""What holds for each test; and the share of them that CI runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from ebpfprof.privileges.capabilities import effective
from tests.share import share

# How long an example takes says how busy the machine is, and nothing of the program.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--share`."""
    parser.addoption("--share", action="store_true", help="run what CI runs (tests/share.py)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not in the share, if that was asked for."""
    if not config.getoption("share"):
        return
    kept = share(
        (item.nodeid for item in items if not item.get_closest_marker("long")),
        (item.nodeid for item in items if item.get_closest_marker("every_build")),
    )
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A name for a parameter; None leaves it to pytest.

    Bytes may have been made just now, with the time in them, as by gzip: workers that run tests
    side by side would not have the same names for them.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def rights_of_the_tests() -> Iterator[None]:
    """Rights that a verb gives up are gone for good, and for all tests that come later."""
    before = effective()
    yield
    assert effective() == before, "run the verb in a process of its own"
