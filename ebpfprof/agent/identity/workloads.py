"""The workload of a pod (deployment, stateful set, ...), from its controller or its name.

Kubernetes names a deployment's replica set DEPLOYMENT-HASH, with the hash as a label of its pods
(deployment/sync.go), and a cron job's job CRONJOB-MINUTES, with the minutes since 1970
(cronjob/utils.go).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_HASHES: Final = ("pod-template-hash", "rollouts-pod-template-hash")
_AS_THEY_ARE: Final = frozenset(("StatefulSet", "DaemonSet", "ReplicationController", "Deployment"))
_MINUTES: Final = re.compile(r"(.+)-[0-9]{8}")
# The characters of the random parts of names (apimachinery, util/rand).
_RANDOM: Final = "[bcdfghjklmnpqrstvwxz2456789]"
_FORMS: Final = (
    re.compile(rf"(.+)-[0-9]{{8}}-{_RANDOM}{{5}}"),  # of a cron job
    re.compile(rf"(.+)-{_RANDOM}{{1,10}}-{_RANDOM}{{5}}"),  # of a deployment
    re.compile(rf"(.+)-{_RANDOM}{{5}}"),  # of a daemon set, a job and others
    re.compile(r"(.+)-[0-9]{1,5}"),  # of a stateful set
)


@dataclass(frozen=True, slots=True)
class Controller:
    """The controller of a pod, from its owner reference; "" if unknown."""

    kind: str = ""
    name: str = ""


def workload_name(pod: str, labels: Mapping[str, str], controller: Controller) -> str:
    """The name of the workload, in OpenTelemetry's order; the pod's name without a workload."""
    if name := _of_controller(controller, labels):
        return name
    if controller.kind:
        return pod if controller.kind == "Node" else _by_form(pod)
    for label in _HASHES:
        if (hash_ := labels.get(label)) and f"-{hash_}-" in pod:
            return pod.rpartition(f"-{hash_}-")[0] or pod
    return _by_form(pod)


def _of_controller(controller: Controller, labels: Mapping[str, str]) -> str:
    """The name from the controller's kind and name; "" for kinds that are not Kubernetes' own."""
    if controller.kind in _AS_THEY_ARE:
        return controller.name
    if controller.kind == "ReplicaSet":
        hashes = (labels.get(label, "") for label in _HASHES)
        endings = [f"-{hash_}" for hash_ in hashes if hash_]
        shorter = [n for e in endings if (n := controller.name.removesuffix(e)) != controller.name]
        return shorter[0] if shorter and shorter[0] else controller.name
    if controller.kind == "Job":
        match = _MINUTES.fullmatch(controller.name)
        return match[1] if match else controller.name
    return ""


def _by_form(pod: str) -> str:
    for form in _FORMS:
        if match := form.fullmatch(pod):
            return match[1]
    return pod
