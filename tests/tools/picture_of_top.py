"""A picture of `ebpfprof top` for the docs: a real recording of the demo service.

    python -m tests.tools.picture_of_top [FILE]

As root. Writes docs/images/top.svg.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from ebpfprof.top.app import TopApp
from ebpfprof.top.poller import Poller, PollingThread
from ebpfprof.top.state import TopView
from ebpfprof.top.tracing import TopTrace
from ebpfprof.tracing.recorder import TraceOptions
from tests.kernel.programs import program
from tests.targets_run import Target

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "top.svg"
COLUMNS, ROWS = 112, 16
RECORDED_S = 20
# The fonts would be fetched from elsewhere; the reader's own do.
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> None:
    """Write the picture."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    options = Options(("block", "mutex", "cpu"), by_lock=True)
    with Target.start(program("demo")) as demo, LiveSession(options, capacity=1) as session:
        target = session.add(demo.pid)
        start = session.start(target)
        trace = TopTrace([target], TraceOptions())
        poller = Poller(session, [target], [start], options, trace)
        view = TopView(poller.nothing(), [each.name for each in poller.views], "block")
        with PollingThread(poller, 2.0) as thread:
            svg = asyncio.run(drawn(TopApp(view, thread, lambda: False), demo.pid))
    lines = FONTS.sub("", svg).splitlines()
    path.write_text("".join(f"{line.rstrip()}\n" for line in lines))


async def drawn(app: TopApp, pid: int) -> str:
    """What is on the screen after some time, as SVG."""
    async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
        await pilot.pause(RECORDED_S)
        return app.export_screenshot(title=f"sudo ebpfprof top --pid {pid} --by-lock")


if __name__ == "__main__":
    main()
