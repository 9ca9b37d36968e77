"""Servers that others wrote, on which `explain` is judged: alone, and where something is wrong.

tests/faults/real requires their modules, which come from the Go module proxy, and has the program
that runs them under load. Builds take minutes.

python -m tests.faults.real_programs    builds these, unless they are in the cache
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.backends.building import built_from
from tests.faults.environment import Environment, container
from tests.faults.programs import JudgedProgram, built_module
from tests.kernel.programs import NEWEST
from tests.targets_run import Target

REAL: Final = Path(__file__).parent / "real"
LOSS: Final = 0.05
"""Of the packets. Networks that are worse are repaired at once."""


class Server(NamedTuple):
    """A server: its package, and tags of its build."""

    name: str
    package: str
    tags: str = ""

    @property
    def path(self) -> Path:
        """The built program. Raises ToolchainError."""
        return built_from(REAL, self.name, self.package, tags=self.tags, minor=NEWEST)


CADDY: Final = Server("caddy", "github.com/caddyserver/caddy/v2/cmd/caddy")
ETCD: Final = Server("etcd", "go.etcd.io/etcd/server/v3")
NATS: Final = Server("nats-server", "github.com/nats-io/nats-server/v2")
# Without the service discovery of clouds, whose modules are most of its build.
PROMETHEUS: Final = Server(
    "prometheus", "github.com/prometheus/prometheus/cmd/prometheus", "remove_all_sd"
)


@dataclass(frozen=True, kw_only=True)
class RealProgram(JudgedProgram):
    """A server under the load of tests/faults/real/load, in one of its setups."""

    server: Server
    setup: str

    def build(self) -> None:
        """See JudgedProgram.build()."""
        _ = self.server.path, built_module("load", REAL)

    @contextmanager
    def start(self) -> Iterator[Target]:
        """See JudgedProgram.start(). The server is in the control groups, its clients are not."""
        load, programs = built_module("load", REAL), self.server.path.parent
        with container(self.environment) as inside:
            words = (*inside.network, str(load), self.setup, str(programs), *inside.enter)
            with Target.start(Path(words[0]), *words[1:], env=inside.variables) as target:
                yield target


def _alone(**limits: object) -> Environment:
    """An environment with a network of its own: ports are free, and nothing else is there."""
    return Environment(has_own_network=True, **limits)  # type: ignore[arg-type]  # `limits` has fields of Environment


def _lossy(*ports: int) -> Environment:
    return _alone(loss=LOSS, lossy_ports=ports)


_NATS_ROUTES: Final = (6222, 6232, 6242)
_ETCD_PEERS: Final = (2380, 2390, 2400)
_TARGETS: Final = tuple(range(9101, 9141))

REAL_PROGRAMS: Final = (
    RealProgram("etcd", None, environment=_alone(), server=ETCD, setup="etcd"),
    RealProgram("etcdcluster", None, environment=_alone(), server=ETCD, setup="etcdcluster"),
    RealProgram(
        "etcd-disk",
        "slow_disk",
        environment=_alone(writes_per_second=60),
        server=ETCD,
        setup="etcd",
    ),
    RealProgram(
        "etcd-quota", "throttling", environment=_alone(cpus=0.2), server=ETCD, setup="etcd"
    ),
    RealProgram(
        "etcd-loss",
        "packet_loss",
        environment=_lossy(*_ETCD_PEERS),
        server=ETCD,
        setup="etcdcluster",
    ),
    RealProgram("nats", None, environment=_alone(), server=NATS, setup="nats"),
    RealProgram("natscluster", None, environment=_alone(), server=NATS, setup="natscluster"),
    RealProgram(
        "nats-disk",
        "slow_disk",
        environment=_alone(writes_per_second=60),
        server=NATS,
        setup="nats",
    ),
    RealProgram(
        "nats-quota", "throttling", environment=_alone(cpus=0.1), server=NATS, setup="nats"
    ),
    RealProgram(
        "nats-loss",
        "packet_loss",
        environment=_lossy(*_NATS_ROUTES),
        server=NATS,
        setup="natscluster",
    ),
    RealProgram("caddy", None, environment=_alone(), server=CADDY, setup="caddy"),
    RealProgram("caddyfiles", None, environment=_alone(), server=CADDY, setup="caddyfiles"),
    RealProgram(
        "caddy-disk",
        "slow_disk",
        environment=_alone(reads_per_second=60),
        server=CADDY,
        setup="caddyfiles",
    ),
    RealProgram(
        "caddy-quota", "throttling", environment=_alone(cpus=0.1), server=CADDY, setup="caddy"
    ),
    RealProgram(
        "caddy-loss",
        "packet_loss",
        environment=_lossy(9001),
        server=CADDY,
        setup="caddy",
    ),
    RealProgram("prometheus", None, environment=_alone(), server=PROMETHEUS, setup="prometheus"),
    # It does not wait for its disk: what it scrapes is in memory, and its log is not synced.
    RealProgram(
        "prometheus-disk",
        None,
        environment=_alone(writes_per_second=60),
        server=PROMETHEUS,
        setup="prometheus",
    ),
    RealProgram(
        "prometheus-quota",
        "throttling",
        environment=_alone(cpus=0.15),
        server=PROMETHEUS,
        setup="prometheus",
    ),
    RealProgram(
        "prometheus-loss",
        "packet_loss",
        environment=_lossy(*_TARGETS),
        server=PROMETHEUS,
        setup="prometheus",
    ),
)

if __name__ == "__main__":
    os.nice(5)
    for each in REAL_PROGRAMS:
        each.build()
