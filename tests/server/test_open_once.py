"""serve has a process open once, whatever clients ask for, and closes it when it ends."""

from __future__ import annotations

import json
import signal
import threading
from time import monotonic

from tests.descriptors import Held, held_of
from tests.kernel.oncall_program import oncall
from tests.server.serving import DEADLINE_S, Server

ONCE = Held(pidfds=1, memories=1)
PROFILES = ("block", "mutex", "wakers", "heap", "allocs", "goroutine", "threads", "threadcreate")
TIMED = ("profile?seconds=1", "wall?seconds=1", "trace?seconds=1", "block?seconds=1")


def ask_for_everything(server: Server, pid: int) -> None:
    """All endpoints at the same time, and those that take no second more than once."""
    page = [
        "/metrics",
        "/api/targets",
        *(f"/api/targets/{pid}/{n}" for n in ("timeline", "goroutines")),
    ]
    texts = [f"/debug/pprof/{name}?debug={debug}" for name in PROFILES for debug in (0, 1)]
    others = [
        f"/debug/pprof/{name}" for name in (*TIMED, "", "cmdline", "symbol?0x401000", "trace?last")
    ]
    others += [f"/debug/pprof/delta_{name}" for name in ("heap", "block", "mutex")]
    statuses: dict[str, int] = {}

    def ask(path: str) -> None:
        for _ in range(1 if "seconds=" in path else 2):
            statuses[path] = server.get(path).status
            assert max(held_of(pid, server.pid)) <= 1

    asking = [threading.Thread(target=ask, args=[path]) for path in (*page, *texts, *others)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(DEADLINE_S)
    assert {path: status for path, status in statuses.items() if status not in (200, 404)} == {}
    assert sum(status == 200 for status in statuses.values()) >= len(statuses) - 4, statuses


def test_a_served_process_is_open_once() -> None:
    with oncall() as target:
        pid = target.target.pid
        arguments = ("--pid", str(pid), "--continuous", "--window", "1s", "--last", "5s")
        with Server(*arguments, "--profile", "block,mutex,wakers,cpu,wall,heap") as server:
            assert server.ready
            until_s = monotonic() + DEADLINE_S
            while not json.loads(server.get(f"/api/targets/{pid}/goroutines").body)["sampled_s"]:
                assert monotonic() < until_s
            ask_for_everything(server, pid)
            assert held_of(pid, server.pid) == ONCE
            target.target.kill()
            while held_of(pid, server.pid) != Held():
                server.get("/metrics")  # it closes what it has of ended processes
                assert monotonic() < until_s
            server.send(signal.SIGINT)
            assert server.finish() == 0
