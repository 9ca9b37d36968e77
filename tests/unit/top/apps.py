"""`ebpfprof top` without a terminal: keys in, the screen as text out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from textual import _wait, constants
from textual.pilot import Pilot

from ebpfprof.top.app import TopApp
from ebpfprof.top.poller import PollingThread
from ebpfprof.top.rows import Moment
from ebpfprof.top.state import TopView

# After each key Textual waits until the process is idle: for 20 ms at least, twice. 2 ms suffice
# where nothing is drawn.
_wait.SLEEP_GRANULARITY /= 10
_wait.SLEEP_IDLE /= 5
_DRAWN_S = 1.5 / constants.MAX_FPS


class StillThread:
    """In place of the thread that looks at processes: it finds nothing."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.message = ""
        self.written = self.traced = 0
        self.found: list[Moment] = []

    def moment(self) -> Moment | None:
        return self.found.pop() if self.found else None

    def write(self) -> None:
        self.written += 1

    def trace(self) -> None:
        self.traced += 1


class Live:
    """The live table while it runs."""

    def __init__(self, app: TopApp, pilot: Pilot[None], thread: StillThread) -> None:
        self.app = app
        self.pilot = pilot
        self.thread = thread

    async def press(self, *keys: str) -> str:
        """The screen after these keys."""
        await self.pilot.press(*keys)
        return await self.text()

    async def show(self, moment: Moment) -> str:
        """The screen after another sample."""
        self.app.show(moment)
        return await self.text()

    async def text(self) -> str:
        """The screen, without spaces at the ends of lines."""
        await self.pilot.pause(_DRAWN_S)
        await self.pilot.pause()
        # No public function of textual gives the screen as text.
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)


def live(
    view: TopView,
    use: Callable[[Live], Awaitable[None]],
    width: int = 100,
    height: int = 30,
    *,
    has_to_end: Callable[[], bool] = lambda: False,
) -> None:
    """Run the live table for `use`."""

    async def run() -> None:
        thread = StillThread()
        app = TopApp(view, cast("PollingThread", thread), has_to_end)
        async with app.run_test(size=(width, height)) as pilot:
            await use(Live(app, pilot, thread))

    asyncio.run(run())


def after(view: TopView, *keys: str, width: int = 100, height: int = 30) -> str:
    """The screen after these keys."""
    found = ""

    async def use(on: Live) -> None:
        nonlocal found
        found = await on.press(*keys)

    live(view, use, width, height)
    return found
