"""The service of a process: what is known of it, how rules change it, and its opt-out.

The order of sources follows OpenTelemetry's conventions: what the program's SDK publishes
(OTEL_CTX), OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES of its environment, Kubernetes, and the
name of its executable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.agent.identity.attributes import of_variable
from ebpfprof.agent.identity.environment import environment
from ebpfprof.agent.identity.kubernetes import PodNames
from ebpfprof.agent.identity.otel_context import published_attributes
from ebpfprof.agent.identity.pods import Pods
from ebpfprof.agent.rules import HIDDEN, MAX_VALUE, applied
from ebpfprof.console.text import printable
from ebpfprof.profile.service import ServiceIdentity

if TYPE_CHECKING:
    from ebpfprof.agent.settings import Settings
    from ebpfprof.discovery.processes import GoProcess

OPT_OUT: Final = "EBPFPROF"
"""The environment variable that excludes a process; OPT_OUT_ANNOTATION is that of its pod."""
OPTED_OUT: Final = "opted-out"
OPT_OUT_ANNOTATION: Final = "ebpfprof/profile"
_OFF: Final = frozenset(("0", "off", "false", "no", "disabled"))
_SERVICE_ANNOTATION: Final = "resource.opentelemetry.io/service.name"
_APP_LABELS: Final = ("app.kubernetes.io/instance", "app.kubernetes.io/name")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]", re.ASCII)
_MAX_LABELS: Final = 24  # Pyroscope takes 30 besides its own
_FIELDS: Final = ("service", "namespace", "version", "node", "pod", "container")

META_LABELS: Final = {
    "__meta_process_name": "the process's name (at most 15 bytes)",
    "__meta_process_executable": "the path of its executable, in its own root",
    "__meta_process_command": "its command line",
    "__meta_process_user": "its user",
    "__meta_go_version": "its Go version",
    "__meta_go_module": "its main module",
    "__meta_go_module_version": "the version of that module; none for (devel)",
    "__meta_container_id": "the id of its container",
    "__meta_kubernetes_namespace": "the pod's namespace",
    "__meta_kubernetes_pod_name": "the pod's name",
    "__meta_kubernetes_pod_uid": "the pod's uid",
    "__meta_kubernetes_container_name": "the container's name in the pod",
    "__meta_kubernetes_pod_annotation_NAME": "an annotation of the pod, if known",
    "__meta_kubernetes_pod_label_NAME": "a label of the pod, if known",
    "__meta_kubernetes_pod_controller_kind": "its controller's kind: ReplicaSet, ... (API server)",
    "__meta_kubernetes_pod_controller_name": "its controller's name (API server)",
    "__meta_environment_NAME": "a variable in the setting `environment`",
    "__meta_otel_NAME": "a resource attribute, from OTEL_CTX or OTEL_RESOURCE_ATTRIBUTES",
    "__meta_node": "the name of the machine",
}
"""The labels that rules see. In NAME, characters other than letters and digits become "_"."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What is known of a process: labels for rules. Sinks get those without "__".

    `opt_out` is why it must not be recorded, "" if it may be.
    """

    labels: Mapping[str, str]
    opt_out: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The service of a process. `why_not` is why it is not recorded; "" if it is."""

    identity: ServiceIdentity
    why_not: str = ""
    reason: str = ""
    """The same as one word: "opted-out" or "rules"."""


@dataclass(slots=True)
class Identifier:
    """Finds the services of processes."""

    settings: Settings
    pods: Pods = field(default_factory=Pods)

    def verdict(self, process: GoProcess) -> Verdict:
        """Inspect a process, and apply the rules."""
        return judged(self.known(process), self.settings, process)

    def known(self, process: GoProcess) -> ProcessFacts:
        """Inspect the environment, mappings and container of a process."""
        settings = self.settings
        variables = environment(process.pid)
        names = self.pods.of(process)
        attributes = of_variable(variables.get("OTEL_RESOURCE_ATTRIBUTES", ""))
        if name := variables.get("OTEL_SERVICE_NAME", "").strip():
            attributes["service.name"] = name
        attributes |= published_attributes(process.pid)
        labels = _meta_labels(process, names, attributes, settings.node_name)
        for name in settings.environment:
            labels[f"__meta_environment_{name}"] = variables.get(name, "")
        labels |= _own_labels(process, names, attributes, settings)
        return ProcessFacts(
            {name: value for name, value in labels.items() if value}, _opt_out(variables, names)
        )


def judged(known: ProcessFacts, settings: Settings, process: GoProcess) -> Verdict:
    """Apply the rules of the settings to what is known of a process."""
    labelled = applied(settings.rules, known.labels)
    shown = {name: _clean(value) for name, value in labelled.labels.items()}
    shown = {name: value for name, value in shown.items() if value and not name.startswith(HIDDEN)}
    more = sorted(shown.keys() - set(_FIELDS))[:_MAX_LABELS]
    identity = ServiceIdentity(
        service=shown.get("service") or _executable(process),
        namespace=shown.get("namespace", ""),
        version=shown.get("version", ""),
        node=shown.get("node", ""),
        pod=shown.get("pod", ""),
        container=shown.get("container", ""),
        labels={name: shown[name] for name in more},
    )
    if known.opt_out:
        return Verdict(identity, known.opt_out, OPTED_OUT)
    if labelled.dropped_by:
        return Verdict(identity, f"rule {labelled.dropped_by} drops it", "rules")
    return Verdict(identity)


def _own_labels(
    process: GoProcess, names: PodNames, attributes: Mapping[str, str], settings: Settings
) -> dict[str, str]:
    """The labels of a process before the rules change them."""
    app = [names.labels.get(name, "") for name in _APP_LABELS] if settings.kubernetes_labels else []
    services = (
        attributes.get("service.name", ""),
        names.annotations.get(_SERVICE_ANNOTATION, ""),
        *app,
        names.workload,
        names.container,
        attributes.get("k8s.container.name", ""),
    )
    return {
        "service": next((name for name in services if name.strip()), _executable(process)),
        "namespace": attributes.get("service.namespace", "")
        or names.namespace
        or attributes.get("k8s.namespace.name", ""),
        "version": attributes.get("service.version", "") or process.module_version,
        "node": settings.node_name,
        "pod": names.pod or attributes.get("k8s.pod.name", ""),
        "container": names.container
        or attributes.get("k8s.container.name", "")
        or attributes.get("container.name", ""),
    }


def _meta_labels(
    process: GoProcess, names: PodNames, attributes: Mapping[str, str], node: str
) -> dict[str, str]:
    labels = {
        "__meta_process_name": process.name,
        "__meta_process_executable": process.executable,
        "__meta_process_command": process.command,
        "__meta_process_user": process.user,
        "__meta_go_version": process.go_version or "",
        "__meta_go_module": process.module,
        "__meta_go_module_version": process.module_version,
        "__meta_container_id": process.container or "",
        "__meta_kubernetes_namespace": names.namespace,
        "__meta_kubernetes_pod_name": names.pod,
        "__meta_kubernetes_pod_uid": names.uid or process.pod or "",
        "__meta_kubernetes_container_name": names.container,
        "__meta_kubernetes_pod_controller_kind": names.controller.kind,
        "__meta_kubernetes_pod_controller_name": names.controller.name,
        "__meta_node": node,
    }
    for kind, texts in (
        ("kubernetes_pod_annotation", names.annotations),
        ("kubernetes_pod_label", names.labels),
        ("otel", attributes),
    ):
        for name, value in texts.items():
            labels[f"__meta_{kind}_{_NOT_IN_NAMES.sub('_', name)}"] = value
    return labels


def _opt_out(variables: Mapping[str, str], names: PodNames) -> str:
    if variables.get(OPT_OUT, "").strip().lower() in _OFF:
        return f"{OPT_OUT}={printable(variables[OPT_OUT].strip())} is in its environment"
    if names.annotations.get(OPT_OUT_ANNOTATION, "").strip().lower() in _OFF:
        return f"its pod has the annotation {OPT_OUT_ANNOTATION}"
    return ""


def _executable(process: GoProcess) -> str:
    return _clean(os.path.basename(process.executable)) or _clean(process.name) or "unknown"


def _clean(text: str) -> str:
    """A value for sinks: printable, without spaces around it, and not too long."""
    return printable(text).strip()[:MAX_VALUE]
