"""What is recorded of services for longer than a command runs: whose it is, and of which time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ebpfprof.profile.model import Profile


@dataclass(frozen=True, slots=True)
class ServiceIdentity:
    """Which service a process belongs to, as people and backends call it; "" for what is not known.

    `service` is never "". `version` is the service's own. `container` is a name, not an id.
    `labels` are further ones, as rules of the configuration made them; no label has a pid.
    """

    service: str
    namespace: str = ""
    version: str = ""
    node: str = ""
    pod: str = ""
    container: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceWindow:
    """What was recorded of one process from `start_s` to `end_s` (Unix time), by names of kinds.

    `pid` and `process_start_ns` (CLOCK_BOOTTIME) distinguish processes of one service. A kind that
    could not be recorded is missing.
    """

    identity: ServiceIdentity
    pid: int
    process_start_ns: int
    command: str
    go_version: str
    start_s: float
    end_s: float
    profiles: Mapping[str, Profile]


@dataclass(frozen=True, slots=True)
class Unwatched:
    """A process that was not recorded from `start_s` to `end_s` (Unix time), and why.

    `reason` is a word: "budget" or "places" (others had their turn), "failed", "unsupported",
    "opted-out" or "rules".
    """

    identity: ServiceIdentity
    pid: int
    process_start_ns: int
    command: str
    start_s: float
    end_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """A process that was recorded ended, at `end_s` (Unix time) or shortly before."""

    pid: int
    process_start_ns: int
    end_s: float


@dataclass(frozen=True, slots=True)
class ServiceFinding:
    """Something that is wrong with a process, as ebpfprof.findings found it, for texts and files.

    `kind` is a word, such as "hot_lock", `level` "stuck", "slow", "risk" or "note", `title` a
    sentence, `lines` sentences with the evidence, `place` the line of code, "" if there is none.
    `share` is a part of the time of requests or of CPU time, 0 to 1, `error` its standard error.
    `subject` is the same as long as it is about the same thing; since `since_s` (Unix time) no two
    explanations in a row have lacked it.
    """

    kind: str
    level: str
    title: str
    subject: str
    since_s: float
    lines: tuple[str, ...] = ()
    share: float | None = None
    error: float = 0.0
    place: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What distinguishes it from the others of its process."""
        return self.kind, self.subject


@dataclass(frozen=True, slots=True)
class ServiceFindings:
    """What was found wrong with a process by `time_s` (Unix time), the worst first; maybe nothing.

    `process_start_ns` is as in ServiceWindow.
    """

    identity: ServiceIdentity
    pid: int
    process_start_ns: int
    command: str
    time_s: float
    findings: tuple[ServiceFinding, ...]
