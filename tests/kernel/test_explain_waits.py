"""`explain` names the lock and the pool for which the requests of real services wait."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.targets_run import Target

SECONDS = "10"
"""The lock is held for two of three seconds, and beside other tests samples are rare."""
PACE = re.compile(r"wait for it on average, ([\d.]+) ± ([\d.]+) times a second, about ")
HOLDER = re.compile(r"Held by main\.\(\*priceCache\)\.get \(main\.go:\d+\)|Its holder runs")


@pytest.fixture(scope="module")
def findings() -> dict[str, list[dict[str, Any]]]:
    """What explain finds in two services, by their names."""
    with (
        Target.start(program("services/hotlock")) as hotlock,
        Target.start(program("services/pool")) as pool,
    ):
        pids = {"hotlock": hotlock.pid, "pool": pool.pid}
        chosen = (word for pid in pids.values() for word in ("--pid", str(pid)))
        output = verb("explain", *chosen, "--duration", SECONDS, "--json")
    of_pids = {one["pid"]: one["findings"] for one in json.loads(output.stdout)["processes"]}
    return {name: of_pids[pid] for name, pid in pids.items()}


def test_a_hot_lock_is_named_with_what_its_holder_does(
    findings: dict[str, list[dict[str, Any]]],
) -> None:
    first = findings["hotlock"][0]
    assert first["kind"] == "hot_lock"
    assert first["title"].startswith("Lock main.priceCache.mu: ")
    assert first["place"]["function"] == "main.(*priceCache).get"
    # On a busy machine, its holder may be seen at other moments than those of its query.
    assert any(HOLDER.match(line) for line in first["lines"]), first["lines"]


def test_a_channel_of_connections_is_named_as_a_pool_with_what_its_users_do(
    findings: dict[str, list[dict[str, Any]]],
) -> None:
    first = findings["pool"][0]
    assert first["kind"] == "starved_pool"
    assert "for an item of a channel (capacity 2)" in first["title"]
    assert first["place"]["function"] == "main.(*connectionPool).acquire"
    assert any("main.(*connection).query" in line for line in first["lines"])
    # Two connections, each used for 10 ms at a time.
    (pace,) = (match for line in first["lines"] if (match := PACE.search(line)))
    assert float(pace[1]) <= 200 + 4 * float(pace[2])
