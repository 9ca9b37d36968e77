"""What the agent can be told: each setting with its type, its default and what it is for.

docs/agent.md has the same as a table, which tests/tools/generate_docs.py makes of these.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ebpfprof.agent.kubernetes_settings import KubernetesSettings
from ebpfprof.agent.rules import ACTIONS, Rule, compiled
from ebpfprof.agent.setting import Setting
from ebpfprof.agent.values import (
    ENVIRONMENT_NAME,
    LABEL_NAME,
    ConvertedValue,
    ListValue,
    NumberValue,
    PathValue,
    SizeValue,
    SwitchValue,
    TextValue,
    TimeValue,
    UrlValue,
    WordValue,
)
from ebpfprof.profilers.registry import kinds_to_choose
from ebpfprof.ring.folder import DEFAULT_FOLDER
from ebpfprof.ring.writer import KEEP_FREE_BYTES, MAX_AGE_S, MAX_BYTES
from ebpfprof.server.listener import Address, parse_address

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_HEADER: Final = re.compile(r"[!-~]{1,256}", re.ASCII)
_LISTEN: Final = Address("127.0.0.1", 6061)
_RING_PATH: Final = str(DEFAULT_FOLDER)
DEFAULT_KINDS: Final = ("block", "mutex", "cpu", "goroutine")


def _kinds() -> list[str]:
    return [kind.name for kind in kinds_to_choose()]


def _address(text: str) -> Address | None:
    return parse_address(text) if text else None


def node_name() -> str:
    """The name of this machine: NODE_NAME of the environment (Kubernetes), else the host's."""
    return os.environ.get("NODE_NAME") or socket.gethostname()


def _folder(variable: str, default: str) -> str:
    """A folder that systemd names by an environment variable (systemd.exec)."""
    return os.environ.get(variable, "").split(":")[0] or default


COMMON: Final = (
    Setting(
        "kinds",
        ListValue(WordValue(_kinds), "kinds of profiles", may_be_empty=False),
        DEFAULT_KINDS,
        "what is recorded of each process",
        is_live=False,
    ),
    Setting("window", TimeValue("1s", "1h"), 60.0, "the length of what a sink gets at a time"),
    Setting(
        "max_overhead",
        NumberValue(0, 100, is_fraction=True),
        1.0,
        "how much of its CPU time a process may lose, in percent; 0 records every wait, whatever "
        "it costs",
        is_live=False,
    ),
    Setting(
        "max_node_overhead",
        NumberValue(0.1, 100, is_fraction=True),
        2.0,
        "how much of the machine's CPU time the recordings and the agent itself may take together, "
        "in percent; processes take turns where that is too little for all",
    ),
    Setting(
        "max_memory",
        SizeValue(64 * _MIB, 64 * _GIB),
        512 * _MIB,
        "how much memory the agent may take; above, it records fewer processes at once",
    ),
    Setting(
        "max_processes",
        NumberValue(1, 1024),
        128,
        "how many processes are recorded at once",
        is_live=False,
    ),
    Setting(
        "min_age",
        TimeValue("0s", "1h"),
        10.0,
        "for how long a process must have run before it is looked at",
    ),
    Setting(
        "goroutine_labels",
        ListValue(TextValue(), "keys"),
        (),
        "which labels that programs give their goroutines (pprof.Do) samples have; a label with "
        "many values makes profiles large",
        is_live=False,
    ),
    Setting(
        "allow_unknown_go",
        SwitchValue(),
        False,
        "try unknown versions of Go, as the nearest known one",
        is_live=False,
    ),
    Setting(
        "environment",
        ListValue(TextValue("a name of a variable", ENVIRONMENT_NAME), "names of variables"),
        (),
        "which variables of a process's environment rules see, as __meta_environment_NAME",
    ),
    Setting(
        "kubernetes_labels",
        SwitchValue(),
        False,
        "take the service's name from the pod's labels app.kubernetes.io/instance and name, too",
    ),
    Setting(
        "node",
        TextValue("a name", may_be_empty=True),
        "",
        "the name of this machine; empty: $NODE_NAME, else the host's name",
    ),
    Setting(
        "host_root",
        PathValue(),
        "/",
        "where the node's /var/log and /run are in sight; in a container that sees the host's "
        "processes, /proc/1/root",
    ),
    Setting(
        "listen",
        ConvertedValue('HOST:PORT, such as "127.0.0.1:6061", or "" for nothing', _address),
        _LISTEN,
        "where /metrics, /healthz and /readyz are answered, to any client",
        is_live=False,
    ),
    Setting(
        "metrics_services",
        NumberValue(0, 1000),
        0,
        "of how many services /metrics tells the waits and the CPU time by name, to any client; "
        "the rest are one, called other",
        is_live=False,
    ),
)
RING: Final = (
    Setting("enabled", SwitchValue(), True, "keep windows on this machine"),
    Setting("path", PathValue(), _RING_PATH, "the folder"),
    Setting("max_bytes", SizeValue(16 * _MIB, 1 << 50), MAX_BYTES, "how large it may become"),
    Setting("max_age", TimeValue("10m", "3660d"), MAX_AGE_S, "for how long windows are kept"),
    Setting(
        "keep_free",
        SizeValue(0, 1 << 50),
        KEEP_FREE_BYTES,
        "how much it leaves free in its file system",
    ),
)
REMOTE: Final = ("otlp", "parca", "pyroscope")
SINK_TYPES: Final = ("folder", *REMOTE)
QUEUE_AGE_S: Final = 86400.0
QUEUE_AGES_S: Final[Mapping[str, float]] = {"pyroscope": 3000.0}
"""Of types of sinks that take nothing older."""
SINK: Final = (
    Setting("type", WordValue(lambda: SINK_TYPES), None, "what it is", is_needed=True),
    Setting(
        "name",
        TextValue("a name", LABEL_NAME),
        "",
        "its name in metrics and messages; if it has none, its type",
    ),
    Setting(
        "path",
        PathValue(),
        "",
        "where pprof files are written",
        is_needed=True,
        sinks=("folder",),
    ),
    Setting(
        "url",
        UrlValue(),
        "",
        "the address of the backend, without the path of its interface",
        is_needed=True,
        sinks=REMOTE,
    ),
    Setting("tenant", TextValue(form=_HEADER), "", "the header X-Scope-OrgID", sinks=REMOTE),
    Setting(
        "bearer_token_file",
        PathValue(),
        "",
        "a file with a token, which is sent as `Authorization: Bearer`",
        sinks=REMOTE,
    ),
    Setting("username", TextValue(), "", "the user, for basic authentication", sinks=REMOTE),
    Setting("password_file", PathValue(), "", "a file with that user's password", sinks=REMOTE),
    Setting(
        "ca_file",
        PathValue(),
        "",
        "the authorities (PEM) that sign the backend's certificate; without it, those of the "
        "system",
        sinks=REMOTE,
    ),
    Setting(
        "certificate_file",
        PathValue(),
        "",
        "our own certificate (PEM), for a backend that asks for one",
        sinks=REMOTE,
    ),
    Setting(
        "key_file",
        PathValue(),
        "",
        "the key of that certificate, if it is in a file of its own",
        sinks=REMOTE,
    ),
    Setting("timeout", TimeValue("1s", "5m"), 10.0, "how long an answer may take", sinks=REMOTE),
    Setting(
        "queue_bytes",
        SizeValue(_MIB, 16 * _GIB),
        64 * _MIB,
        "how much may wait for it in memory; what is more waits in the local ring, if there is one",
    ),
    Setting(
        "queue_age",
        TimeValue("1s", "24h"),
        QUEUE_AGE_S,
        "for how long a window may wait for it; 50m for pyroscope, which takes nothing older than "
        "an hour",
    ),
)
RULE: Final = (
    Setting("action", WordValue(lambda: ACTIONS), "replace", "what the rule does"),
    Setting(
        "source",
        ListValue(TextValue("a name of a label", LABEL_NAME), "names of labels", may_be_text=True),
        (),
        "the labels whose values are joined and matched",
    ),
    Setting(
        "regex",
        ConvertedValue("a regular expression", compiled, tells_why=True),
        compiled("(.*)"),
        "what they, or for labelmap, labeldrop and labelkeep each label's name, must match as a "
        "whole",
    ),
    Setting("target", TextValue("a name of a label", may_be_empty=True), "", "the label to set"),
    Setting("replacement", TextValue(may_be_empty=True), "$1", "its value, with $1 or ${name}"),
    Setting("separator", TextValue(may_be_empty=True), ";", "what stands between joined values"),
)


@dataclass(frozen=True, slots=True)
class RingSettings:
    """The table [ring]."""

    enabled: bool = True
    path: str = _RING_PATH
    max_bytes: int = MAX_BYTES
    max_age: float = MAX_AGE_S
    keep_free: int = KEEP_FREE_BYTES


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """One of [[sinks]]."""

    type: str
    name: str
    path: str = ""
    url: str = ""
    tenant: str = ""
    bearer_token_file: str = ""
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    timeout: float = 10.0
    queue_bytes: int = 64 * _MIB
    queue_age: float = QUEUE_AGE_S


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, by the names of their keys; times in seconds, sizes in bytes."""

    kinds: tuple[str, ...] = DEFAULT_KINDS
    window: float = 60.0
    max_overhead: float = 1.0
    max_node_overhead: float = 2.0
    max_memory: int = 512 * _MIB
    max_processes: int = 128
    min_age: float = 10.0
    goroutine_labels: tuple[str, ...] = ()
    allow_unknown_go: bool = False
    environment: tuple[str, ...] = ()
    kubernetes_labels: bool = False
    node: str = ""
    host_root: str = "/"
    listen: Address | None = _LISTEN
    metrics_services: int = 0
    options: Mapping[str, int] = field(default_factory=dict)
    """The table [options]: recording options of kinds, by Option.field."""
    ring: RingSettings = RingSettings()
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    sinks: tuple[SinkSettings, ...] = ()
    rules: tuple[Rule, ...] = ()

    @property
    def node_name(self) -> str:
        """What the machine is called."""
        return self.node or node_name()


def default_ring() -> RingSettings:
    """The ring that there is without the table [ring]: in the folder that systemd made, if any."""
    return RingSettings(path=_folder("STATE_DIRECTORY", _RING_PATH))
