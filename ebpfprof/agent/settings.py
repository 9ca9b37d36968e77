"""The agent's settings: each is a field with its type, default and help.

docs/commands/agent-settings.md and the values of the Helm chart are generated from them.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ebpfprof.agent.kubernetes_settings import KubernetesSettings
from ebpfprof.agent.rules import Rule
from ebpfprof.profilers.registry import kinds_to_choose
from ebpfprof.ring.folder import DEFAULT_FOLDER
from ebpfprof.ring.writer import KEEP_FREE_BYTES, MAX_AGE_S, MAX_BYTES
from ebpfprof.server.listener import Address, parse_address
from ebpfprof.settings.recording import ALLOW_UNKNOWN_GO, BY_HANDLER, MAX_OVERHEAD
from ebpfprof.settings.setting import setting, shared
from ebpfprof.settings.values import (
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

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3600.0
_DAY_S: Final = 86400.0
_HEADER: Final = re.compile(r"[!-~]{1,256}", re.ASCII)
_RING_PATH: Final = str(DEFAULT_FOLDER)
REMOTE: Final = ("otlp", "parca", "pyroscope")
SINK_TYPES: Final = ("folder", *REMOTE)
QUEUE_AGE_S: Final = _DAY_S
QUEUE_AGES_S: Final[Mapping[str, float]] = {"pyroscope": 50 * _MINUTE_S}
"""By type of sink, for those that take nothing older."""


def _kinds() -> list[str]:
    return [kind.name for kind in kinds_to_choose()]


def _address(text: str) -> Address | None:
    return parse_address(text) if text else None


def node_name() -> str:
    """The name of this machine: the variable NODE_NAME (Kubernetes), else the host name."""
    return os.environ.get("NODE_NAME") or socket.gethostname()


def _folder(variable: str, default: str) -> str:
    """A folder that systemd passes in an environment variable (systemd.exec)."""
    return os.environ.get(variable, "").split(":")[0] or default


@dataclass(frozen=True, slots=True)
class RingSettings:
    """The table [ring]."""

    enabled: bool = setting(SwitchValue(), True, "Keep profiles on this machine.")
    path: str = setting(PathValue(), _RING_PATH, "The folder of the local ring.")
    max_bytes: int = setting(
        SizeValue(16 * _MIB, 1 << 50), MAX_BYTES, "The maximum size of the local ring."
    )
    max_age: float = setting(
        TimeValue(10 * _MINUTE_S, 3660 * _DAY_S), MAX_AGE_S, "How long profiles are kept."
    )
    keep_free: int = setting(
        SizeValue(0, 1 << 50), KEEP_FREE_BYTES, "How much space to leave free in the file system."
    )


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """One of [[sinks]]."""

    type: str = setting(
        WordValue(lambda: SINK_TYPES), None, "The type of the sink.", is_needed=True
    )
    name: str = setting(
        TextValue("a name", LABEL_NAME),
        "",
        "Its name in metrics and messages; by default the type.",
    )
    path: str = setting(
        PathValue(), "", "The folder for pprof files.", is_needed=True, sinks=("folder",)
    )
    url: str = setting(
        UrlValue(),
        "",
        "The address of the backend, without the path of its API.",
        is_needed=True,
        sinks=REMOTE,
    )
    tenant: str = setting(
        TextValue(form=_HEADER), "", "The value of the header X-Scope-OrgID.", sinks=REMOTE
    )
    bearer_token_file: str = setting(
        PathValue(), "", "A file with a token for `Authorization: Bearer`.", sinks=REMOTE
    )
    username: str = setting(TextValue(), "", "The user for basic authentication.", sinks=REMOTE)
    password_file: str = setting(
        PathValue(), "", "A file with the password of that user.", sinks=REMOTE
    )
    ca_file: str = setting(
        PathValue(),
        "",
        "The certificate authorities (PEM) for the backend; by default those of the system.",
        sinks=REMOTE,
    )
    certificate_file: str = setting(
        PathValue(), "", "The client certificate (PEM), if the backend asks for one.", sinks=REMOTE
    )
    key_file: str = setting(
        PathValue(), "", "The key of that certificate, if it has its own file.", sinks=REMOTE
    )
    timeout: float = setting(
        TimeValue(1.0, 5 * _MINUTE_S), 10.0, "How long to wait for a response.", sinks=REMOTE
    )
    queue_bytes: int = setting(
        SizeValue(_MIB, 16 * _GIB),
        64 * _MIB,
        "How many profiles may wait in memory; more wait in the local ring, if there is one.",
    )
    queue_age: float = setting(
        TimeValue(1.0, _DAY_S),
        QUEUE_AGE_S,
        "How long a profile may wait; 50m for pyroscope, which rejects profiles older than an "
        "hour.",
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, by the names of their keys; times in seconds, sizes in bytes."""

    kinds: tuple[str, ...] = setting(
        ListValue(WordValue(_kinds), "kinds of profiles", may_be_empty=False),
        tuple(kind.name for kind in kinds_to_choose() if kind.is_agent_default),
        "The profiles to record of each process.",
        is_live=False,
    )
    window: float = setting(
        TimeValue(1.0, _HOUR_S), _MINUTE_S, "The length of one profile that sinks get."
    )
    max_overhead: float = shared(MAX_OVERHEAD)
    max_node_overhead: float = setting(
        NumberValue(0.1, 100, is_fraction=True),
        2.0,
        "Allowed overhead of all recordings and of the agent, in percent of the machine's CPU "
        "time. If that is too little for all processes, they are recorded in turns.",
    )
    max_memory: int = setting(
        SizeValue(64 * _MIB, 64 * _GIB),
        512 * _MIB,
        "How much memory the agent may use; above that, it records fewer processes at once.",
    )
    max_processes: int = setting(
        NumberValue(1, 1024), 128, "How many processes to record at once.", is_live=False
    )
    min_age: float = setting(
        TimeValue(0.0, _HOUR_S, may_be_0=True),
        10.0,
        "How long a process must have run before it is recorded.",
    )
    explain: float = setting(
        TimeValue(0.0, _DAY_S, may_be_0=True),
        10 * _MINUTE_S,
        "How often to explain each process, as `ebpfprof explain` does: what is wrong with it is "
        "in the log, in /metrics, in `history` and at sinks. One process at a time, within a "
        "quarter of max_node_overhead; 0 for never.",
    )
    goroutine_labels: tuple[str, ...] = setting(
        ListValue(TextValue(), "keys"),
        (),
        "The goroutine labels (pprof.Do) to show in profiles. Labels with many values make "
        "profiles large.",
        is_live=False,
    )
    by_handler: bool = shared(BY_HANDLER)
    allow_unknown_go: bool = shared(ALLOW_UNKNOWN_GO)
    environment: tuple[str, ...] = setting(
        ListValue(TextValue("a name of a variable", ENVIRONMENT_NAME), "names of variables"),
        (),
        "Variables of a process's environment that rules see as __meta_environment_NAME.",
    )
    kubernetes_labels: bool = setting(
        SwitchValue(),
        False,
        "Also take the service name from the pod labels app.kubernetes.io/instance and name.",
    )
    node: str = setting(
        TextValue("a name", may_be_empty=True),
        "",
        "The name of this machine; by default $NODE_NAME, else the host name.",
    )
    host_root: str = setting(
        PathValue(),
        "/",
        "Where the node's /var/log and /run are visible: /proc/1/root in a container that sees "
        "the host's processes.",
    )
    listen: Address | None = setting(  # noqa: RUF009 - a field
        ConvertedValue('HOST:PORT, such as "127.0.0.1:6061", or "" for nothing', _address),
        Address("127.0.0.1", 6061),
        "The address of /metrics, /healthz and /readyz, which answer any client.",
        is_live=False,
        in_chart=False,
    )
    metrics_services: int = setting(
        NumberValue(0, 1000),
        0,
        "For how many services /metrics shows waits and CPU time by name, to any client; the "
        "others are summed up as `other`.",
        is_live=False,
    )
    options: Mapping[str, int] = field(default_factory=dict)
    """The table [options]: recording options of kinds, by Setting.name."""
    ring: RingSettings = RingSettings()
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    sinks: tuple[SinkSettings, ...] = ()
    rules: tuple[Rule, ...] = ()

    @property
    def node_name(self) -> str:
        """The name of the machine."""
        return self.node or node_name()


def default_ring() -> RingSettings:
    """The ring without a table [ring]: in the folder that systemd made, if any."""
    return RingSettings(path=_folder("STATE_DIRECTORY", _RING_PATH))
