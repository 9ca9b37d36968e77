"""Work that runs to its end although its caller was cancelled."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from ebpfprof.continuous.background import BackgroundTasks


async def cancelled(*, work_fails: bool, undo_fails: bool) -> tuple[list[str], list[str]]:
    """What was done for a caller that is cancelled meanwhile, and the errors that are reported."""
    done: list[str] = []
    reported: list[str] = []
    begun, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def report(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        reported.append(str(context["exception"]))

    loop.set_exception_handler(report)

    async def work() -> None:
        begun.set()
        await go_on.wait()
        done.append("work")
        if work_fails:
            raise OSError("work")

    async def undo() -> None:
        done.append("undo")
        if undo_fails:
            raise OSError("undo")

    background = BackgroundTasks()
    caller = asyncio.create_task(background.complete(work(), undo))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go_on.set()
    await background.join()
    del caller
    gc.collect()
    await asyncio.sleep(0)  # not a pause: the loop runs what is due
    return done, reported


@pytest.mark.parametrize(
    ("work_fails", "undo_fails", "done", "reported"),
    [
        (False, False, ["work", "undo"], []),
        (False, True, ["work", "undo"], ["undo"]),
        (True, False, ["work"], []),
    ],
)
def test_what_was_done_for_a_cancelled_caller_is_undone(
    *, work_fails: bool, undo_fails: bool, done: list[str], reported: list[str]
) -> None:
    assert asyncio.run(cancelled(work_fails=work_fails, undo_fails=undo_fails)) == (done, reported)
