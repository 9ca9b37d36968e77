"""The container of a process, from the name of its control group."""

from __future__ import annotations

import re
from dataclasses import dataclass

SHORT_ID = 12
"""How many digits of an id Docker shows."""

# Docker, containerd, CRI-O and Podman: "<id>", "docker-<id>.scope", "crio-<id>.scope",
# "libpod-<id>.scope", "nerdctl-<id>.scope", "kubepods-pod<uid>.slice:cri-containerd:<id>"; and
# AWS Fargate's "<32 digits>-<number>".
_ID = re.compile(r"(?:.*[-:])?(?:([0-9a-f]{64})(?:\.scope)?|([0-9a-f]{32}-[0-9]{1,20}))", re.ASCII)
# The container's monitor runs outside of it, in a group with the container's id.
_MONITOR = re.compile(r"(?:crio|libpod)-conmon-|lxc\.monitor")
_LXC = re.compile(r"lxc\.payload\.([\w.-]{1,128})", re.ASCII)
_LXC_PARENTS = ("lxc", "lxc.payload")
_NAME = re.compile(r"[\w.-]{1,128}", re.ASCII)
# "pod<uid>", "kubepods-burstable-pod<uid>.slice"; systemd writes "_" for the "-" of uids, and the
# uids of static pods have neither.
_POD = re.compile(
    r"(?:^|-)pod([0-9a-f]{8}([-_]?)(?:[0-9a-f]{4}\2){3}[0-9a-f]{12})(?:\.slice)?(?::.*)?", re.ASCII
)
_BUILDKIT = re.compile(r"[0-9a-z]{25}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Container:
    """A container: its `id`, or its name if it has no id (LXC).

    `pod` is the uid of its Kubernetes pod, with dashes.
    """

    id: str
    pod: str | None = None


def container_of(cgroups: str) -> Container | None:
    """The container in the text of a /proc/PID/cgroup; None without one.

    Each line is "number:controllers:path", proc(5) and cgroups(7). For nested containers, it is
    the innermost one.
    """
    for line in cgroups.splitlines():
        parts = line.split(":", 2)[-1].split("/")
        innermost = _innermost(parts)
        if innermost is not None:
            return Container(innermost, _pod(parts))
    return None


def _innermost(parts: list[str]) -> str | None:
    for index in range(len(parts) - 1, -1, -1):
        part, parent = parts[index], parts[index - 1] if index else ""
        if _MONITOR.match(part):
            return None
        if match := _ID.fullmatch(part):
            return match[1] or match[2]
        if match := _LXC.fullmatch(part):
            return match[1]
        if parent in _LXC_PARENTS and _NAME.fullmatch(part):
            return part
        if parent == "buildkit" and _BUILDKIT.fullmatch(part):
            return part
    return None


def _pod(parts: list[str]) -> str | None:
    for part in reversed(parts):
        match = _POD.search(part)
        if match and match.end() == len(part):
            digits = re.sub("[-_]", "", match[1])
            ends = (8, 12, 16, 20, 32)
            return "-".join(digits[start:end] for start, end in zip((0, *ends), ends, strict=False))
    return None
