"""Who is who: real processes with real environments and mappings, files as the kubelet has them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.agent.identity.attributes import (
    NoAttributesError,
    of_process_context,
    of_variable,
)
from ebpfprof.agent.identity.environment import variables
from ebpfprof.agent.identity.kubernetes import NodeFiles, PodNames, of_bundle
from ebpfprof.agent.identity.otel_context import addresses, published_attributes
from ebpfprof.agent.identity.pods import Pods
from ebpfprof.agent.identity.service import META_LABELS, Identifier, Verdict
from ebpfprof.agent.settings import Settings
from ebpfprof.agent.settings_file import parsed
from tests.agent.contexts import process_context
from tests.agent.processes import SHOP, described, with_environment
from tests.targets_run import Target

ID = "0123456789abcdef" * 4
UID = "11111111-2222-3333-4444-555555555555"
PUBLISHER = Path(__file__).parent / "publisher.py"


def verdict(
    pid: int, settings: Settings | None = None, pods: Pods | None = None, **changes: object
) -> Verdict:
    found = replace(settings or Settings(), node="n1")
    return Identifier(found, pods or Pods("/nowhere")).verdict(described(pid, **changes))


@pytest.mark.parametrize(
    ("env", "service", "version", "namespace"),
    [
        ({}, "dash", "", ""),
        ({"OTEL_SERVICE_NAME": "till"}, "till", "", ""),
        (
            {
                "OTEL_RESOURCE_ATTRIBUTES": "service.name=a%20b, service.version=7,"
                "service.namespace=eu"
            },
            "a b",
            "7",
            "eu",
        ),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "service.name=a", "OTEL_SERVICE_NAME": "b"},
            "b",
            "",
            "",
        ),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=a,broken"}, "dash", "", ""),
        ({"OTEL_SERVICE_NAME": "  "}, "dash", "", ""),
        (
            {"OTEL_SERVICE_NAME": "\x1b]0;x\x07" + "y" * 2000},
            ("\\x1b]0;x\\x07" + "y" * 2000)[:1024],
            "",
            "",
        ),
    ],
    ids=["executable", "name", "attributes", "name-first", "malformed", "blank", "hostile"],
)
def test_the_environment_names_a_service(
    env: dict[str, str], service: str, version: str, namespace: str
) -> None:
    with with_environment(**env) as pid:
        found = verdict(pid).identity
    assert (found.service, found.version, found.namespace) == (service, version, namespace)
    assert (found.node, found.pod, found.container, dict(found.labels)) == ("n1", "", "", {})


def test_what_an_sdk_publishes_comes_first() -> None:
    attributes: dict[str, str | int | bool] = {
        "service.name": "published",
        "service.version": "2",
        "n": -7,
        "b": True,
    }
    message = process_context(attributes).hex()
    env = {"OTEL_SERVICE_NAME": "other", "OTEL_RESOURCE_ATTRIBUTES": "service.namespace=eu"}
    arguments = (str(PUBLISHER), message)
    with Target.start(Path(sys.executable), *arguments, env=env, ready=None) as publisher:
        publisher.ask("right", "published")
        found = verdict(publisher.pid).identity
        assert (found.service, found.version, found.namespace) == ("published", "2", "eu")
        published = published_attributes(publisher.pid)
        assert (published["n"], published["b"]) == ("-7", "true")
        for fault in ("signature", "version", "unpublished", "huge", "nowhere", "cut"):
            publisher.ask(fault, "published")
            assert published_attributes(publisher.pid) == {}, fault
        assert verdict(publisher.pid).identity.service == "other"


def test_only_mappings_of_that_name_are_read() -> None:
    maps = b"".join(
        b"%x-%x rw-p 00000000 00:01 1  %s\n" % (n << 12, (n + 1) << 12, name)
        for n, name in enumerate(
            [
                b"[anon:OTEL_CTX]",
                b"[anon_shmem:OTEL_CTX]",
                b"/memfd:OTEL_CTX (deleted)",
                b"/memfd:OTEL_CTX2 (deleted)",
                b"/srv/[anon:OTEL_CTX] x",
                b"/tmp/x:OTEL_CTX",
            ],
            start=1,
        )
    )
    assert addresses(maps) == [0x1000, 0x2000, 0x3000]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05abc",
        b"\x0a",
        b"\xff" * 11,
        b"\x0b",
        b"\x00\x00",
        b"\x09\x00",
        b"\x0a\x03\x0a\x05x",
        b"\x0a\x0b\x0a\x09\x0a\x01k\x12\x04\x0a\x05ab",
    ],
)
def test_malformed_messages_are_refused(data: bytes) -> None:
    with pytest.raises(NoAttributesError):
        of_process_context(data)


def test_there_is_a_bound_for_attributes() -> None:
    many = {f"k{n}": "v" * 5000 for n in range(500)}
    found = of_process_context(process_context(many))
    assert (len(found), len(found["k0"])) == (128, 1024)
    assert of_variable(",".join(f"k{n}=v" for n in range(500))) == {}
    assert of_variable("a=1, b = %C3%BC ,") == {"a": "1", "b": "ü"}


def test_the_first_variable_of_a_name_counts() -> None:
    assert variables(b"A=1\0A=2\0=x\0B\0C=\xff\0") == {"A": "1", "C": "\\xff"}
    assert variables(b"A=" + bytes([66]) * 9999) == {"A": "B" * 4096}


@pytest.mark.parametrize(
    ("value", "is_recorded"),
    [("off", False), (" No ", False), ("0", False), ("on", True), ("", True)],
)
def test_a_process_can_opt_out(value: str, is_recorded: bool) -> None:
    with with_environment(EBPFPROF=value) as pid:
        assert verdict(pid).reason == ("" if is_recorded else "opted-out")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The files of a node with one pod."""
    logs = tmp_path / "var/log/containers"
    logs.mkdir(parents=True)
    (logs / f"till-7d4b9cf6c5-x2x4q_shops_app-{ID}.log").symlink_to("/nowhere")
    (logs / "odd name.log").touch()
    (tmp_path / f"var/log/pods/shops_till-7d4b9cf6c5-x2x4q_{UID}").mkdir(parents=True)
    return tmp_path


def bundle(node: Path, annotations: Mapping[str, str], container: str = ID) -> None:
    folder = node / f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{container}"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"annotations": annotations}))


CRI = {
    "io.kubernetes.cri.sandbox-namespace": "shops",
    "io.kubernetes.cri.sandbox-name": "web-0",
    "io.kubernetes.cri.container-name": "main",
    "io.kubernetes.cri.sandbox-uid": UID,
}


def test_names_of_pods_come_from_the_kubelets_files(node: Path) -> None:
    with with_environment() as pid:
        found = verdict(pid, pods=Pods(str(node)), container=ID, pod=UID).identity
    assert (found.service, found.namespace) == ("till", "shops")
    assert (found.pod, found.container) == ("till-7d4b9cf6c5-x2x4q", "app")


def test_names_of_pods_come_from_the_bundle(node: Path) -> None:
    bundle(node, CRI)
    with with_environment() as pid:
        found = verdict(pid, pods=Pods(str(node)), container=ID).identity
    assert (found.service, found.pod, found.container) == ("web", "web-0", "main")


def test_the_folder_of_a_pod_is_enough_for_its_name(node: Path) -> None:
    found = NodeFiles(str(node)).of("f" * 64, UID)
    assert (found.namespace, found.pod) == ("shops", "till-7d4b9cf6c5-x2x4q")


@pytest.mark.parametrize("container", ["../../etc", "", None, "f" * 64, ID[:12]])
def test_other_containers_have_no_names(node: Path, container: str | None) -> None:
    assert NodeFiles(str(node)).of(container, None) == PodNames()


@pytest.mark.parametrize(
    ("annotations", "settings", "service", "reason"),
    [
        ({"ebpfprof/profile": "off"}, "", "web", "opted-out"),
        ({"resource.opentelemetry.io/service.name": "named"}, "", "named", ""),
        ({"io.kubernetes.cri-o.Labels": '{"app.kubernetes.io/name": "app"}'}, "", "web", ""),
        (
            {"io.kubernetes.cri-o.Labels": '{"app.kubernetes.io/name": "app"}'},
            "kubernetes_labels = true",
            "app",
            "",
        ),
        ({"io.kubernetes.cri-o.Annotations": '{"ebpfprof/profile": "no"}'}, "", "web", "opted-out"),
        ({"io.kubernetes.cri-o.Annotations": "[" * 9999}, "", "web", ""),
    ],
)
def test_annotations_count(
    node: Path, annotations: dict[str, str], settings: str, service: str, reason: str
) -> None:
    bundle(node, {**CRI, **annotations})
    with with_environment() as pid:
        found = verdict(pid, parsed(settings, "a"), Pods(str(node)), container=ID)
    assert (found.identity.service, found.reason) == (service, reason)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"annotations": 3}', b"\xff", b"[" * 99999])
def test_a_bundle_that_makes_no_sense_has_no_names(data: bytes) -> None:
    assert of_bundle(data) == PodNames()


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        ("till-7d4b9cf6c5-x2x4q", "till"),
        ("logs-x2x4q", "logs"),
        ("web-12", "web"),
        ("single", "single"),
        ("my-app", "my-app"),
        ("backup-29384756-x2x4q", "backup"),
        ("backup-29456784-x2x4q", "backup"),
        ("", ""),
    ],
)
def test_the_name_of_a_pod_shows_its_workload(pod: str, workload: str) -> None:
    assert PodNames(pod=pod).workload == workload


def test_rules_see_all_labels_of_the_docs(node: Path) -> None:
    bundle(node, {**CRI, "team": "till"})
    rules = "\n".join(
        f'[[rules]]\nsource = "{name}"\ntarget = "m{number}"'
        for number, name in enumerate(META_LABELS)
    )
    text = 'environment = ["APP"]\n' + rules
    for old, new in (
        ("annotation_NAME", "annotation_team"),
        ("environment_NAME", "environment_APP"),
        ("otel_NAME", "otel_cloud_region"),
    ):
        text = text.replace(old, new)
    env = {"APP": "x", "OTEL_RESOURCE_ATTRIBUTES": "cloud.region=eu-1"}
    with with_environment(**env) as pid:
        about = {"container": ID, "module_version": "v1"}
        found = verdict(pid, parsed(text, "a"), Pods(str(node)), **about).identity
    names = list(META_LABELS)
    missing = {
        names[int(n[1:])] for n in (f"m{i}" for i in range(len(names))) if n not in found.labels
    }
    # What only the API server and the container runtime know: tests/agent/test_pods.py.
    assert missing == {
        "__meta_kubernetes_pod_label_NAME",
        "__meta_kubernetes_pod_controller_kind",
        "__meta_kubernetes_pod_controller_name",
    }
    assert found.version == "v1"
    assert not any(value == str(pid) for value in found.labels.values())


def test_variables_are_seen_only_if_they_are_named() -> None:
    text = '[[rules]]\naction = "labelmap"\nregex = "__meta_environment_(.*)"\nreplacement = "e_$1"'
    with with_environment(SECRET="s3cret", APP="x") as pid:
        assert dict(verdict(pid, parsed(text, "a")).identity.labels) == {}
        named = verdict(pid, parsed('environment = ["APP"]\n' + text, "a")).identity
    assert dict(named.labels) == {"e_APP": "x"}


def test_a_process_that_ended_is_its_executable() -> None:
    found = Identifier(replace(Settings(), node="n1")).verdict(SHOP).identity
    assert (found.service, found.version) == ("shop", "v1.2.3")
