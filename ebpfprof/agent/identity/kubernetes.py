"""Pod names from the node's own files, without an API server or a socket that means root.

The kubelet names log files after pod, namespace, container and id. containerd and CRI-O have a
config.json for each container, with the names in annotations. The files belong to root; the names
in them come from users who may create pods.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ebpfprof.agent.identity.workloads import Controller, workload_name

_LOG: Final = re.compile(
    r"([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)_([a-z0-9][a-z0-9-]{0,62})_"
    r"([a-z0-9][a-z0-9-]{0,62})-([0-9a-f]{64})\.log",
    re.ASCII,
)
"""A link in /var/log/containers: POD_NAMESPACE_CONTAINER-ID.log (the kubelet's legacy.go)."""
_POD_FOLDER: Final = re.compile(r"([a-z0-9][a-z0-9-]{0,62})_([a-z0-9][a-z0-9.-]{0,252})_([^_/]+)")
"""A folder in /var/log/pods: NAMESPACE_POD_UID."""
_ID: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_CRI_O: Final = "io.kubernetes.cri-o"
_BUNDLES: Final = (
    "run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json",
    "run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json",
    "run/containers/storage/overlay-containers/{}/userdata/config.json",
    "var/lib/containers/storage/overlay-containers/{}/userdata/config.json",
)
MAX_BUNDLE_BYTES: Final = 1 << 20
_MAX_NAMES: Final = 100_000
_FRESH_S: Final = 2.0
MAX_KEPT: Final = 4096
MAX_TEXT: Final = 1024


@dataclass(frozen=True, slots=True)
class PodNames:
    """The names of a container's pod; "" for unknown ones."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    uid: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    controller: Controller = field(default_factory=Controller)

    @property
    def workload(self) -> str:
        """The name of the deployment, stateful set or similar."""
        return workload_name(self.pod, self.labels, self.controller)


class NodeFiles:
    """The pods of this node, from the files below `root`."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._logs: dict[str, PodNames] = {}
        self._folders: dict[str, tuple[str, str]] = {}
        self._read_s = -_FRESH_S
        self._bundles: dict[str, PodNames] = {}

    def of(self, container: str | None, pod_uid: str | None) -> PodNames:
        """The names for a container id and the uid of its pod; empty ones without a pod."""
        if not container or not _ID.fullmatch(container):
            return PodNames()
        names = self._bundle(container)
        if not names.pod:
            logged = self._logged(container)
            names = PodNames(
                *(logged.namespace, logged.pod, logged.container or names.container, names.uid),
                *(names.annotations, names.labels),
            )
        if not names.pod and pod_uid:
            namespace, pod = self._folder(pod_uid)
            names = PodNames(namespace, pod, names.container, pod_uid)
        return names

    def _bundle(self, container: str) -> PodNames:
        if (known := self._bundles.get(container)) is not None:
            return known
        names = PodNames()
        for path in _BUNDLES:
            with suppress(OSError):  # this runtime keeps no bundle here: the next path may
                with open(os.path.join(self._root, path.format(container)), "rb") as file:
                    names = of_bundle(file.read(MAX_BUNDLE_BYTES + 1))
                if len(self._bundles) >= MAX_KEPT:
                    self._bundles.clear()
                self._bundles[container] = names  # a container's bundle never changes
                break
        return names

    def _logged(self, container: str) -> PodNames:
        if container not in self._logs:
            self._read()
        return self._logs.get(container, PodNames())

    def _folder(self, uid: str) -> tuple[str, str]:
        if uid not in self._folders:
            self._read()
        return self._folders.get(uid, ("", ""))

    def _read(self) -> None:
        """List the log files again, at most every two seconds."""
        if time.monotonic() - self._read_s < _FRESH_S:
            return
        self._read_s = time.monotonic()
        logs = (_LOG.fullmatch(name) for name in self._names("var/log/containers"))
        self._logs = {m[4]: PodNames(m[2], m[1], m[3]) for m in logs if m}
        folders = (_POD_FOLDER.fullmatch(name) for name in self._names("var/log/pods"))
        self._folders = {dashed(m[3]): (m[1], m[2]) for m in folders if m}

    def _names(self, folder: str) -> list[str]:
        try:
            return os.listdir(os.path.join(self._root, folder))[:_MAX_NAMES]
        except OSError:
            return []


def of_bundle(data: bytes) -> PodNames:
    """The names in an OCI config.json of containerd or CRI-O; empty ones if it has none."""
    try:
        annotations = json.loads(data)["annotations"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return PodNames()
    if not isinstance(annotations, dict):
        return PodNames()

    def text(*names: str) -> str:
        values = (annotations.get(name) for name in names)
        return next((value[:MAX_TEXT] for value in values if isinstance(value, str) and value), "")

    return PodNames(
        namespace=text("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"),
        pod=text("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"),
        container=text("io.kubernetes.cri.container-name", "io.kubernetes.container.name"),
        uid=text("io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"),
        annotations=texts(annotations) | texts(_json(annotations, f"{_CRI_O}.Annotations")),
        labels=texts(_json(annotations, f"{_CRI_O}.Labels")),
    )


def _json(annotations: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - any value of JSON
    """The JSON value of an annotation; {} without it."""
    try:
        return json.loads(annotations.get(name, "{}"))
    except (ValueError, TypeError, RecursionError):
        return {}


def texts(value: Any) -> dict[str, str]:  # noqa: ANN401 - any value of JSON
    """The texts of a JSON object, without those that are too long; {} for anything else."""
    if not isinstance(value, dict):
        return {}
    return {
        key[:MAX_TEXT]: text[:MAX_TEXT]
        for key, text in value.items()
        if isinstance(text, str) and len(text) <= MAX_TEXT
    }


def dashed(uid: str) -> str:
    """A uid with dashes, as in discovery.containers; those of static pods have 32 digits."""
    digits = uid.replace("-", "")
    if len(digits) != 32:
        return uid
    ends = (8, 12, 16, 20, 32)
    return "-".join(digits[start:end] for start, end in zip((0, *ends), ends, strict=False))
