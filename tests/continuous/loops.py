"""Tests in an event loop of their own, and how they wait there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's work in an event loop of its own; fails if it takes a minute."""
    asyncio.run(asyncio.wait_for(work, 60))


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true; fails if it never is."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def never() -> None:
    """Wait for ever."""
    await asyncio.Event().wait()
