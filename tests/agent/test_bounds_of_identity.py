"""What is read of processes and pods is bounded, and comes from where it should."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from ebpfprof.agent.identity import kubernetes, otel_context
from ebpfprof.agent.identity.kubernetes import NodeFiles, PodNames, of_bundle
from ebpfprof.agent.identity.otel_context import published_attributes
from ebpfprof.agent.identity.pods import Pods
from ebpfprof.agent.identity.service import Identifier
from ebpfprof.agent.identity.workloads import Controller
from ebpfprof.agent.settings import Settings
from ebpfprof.agent.settings_file import parsed
from tests.agent.contexts import process_context
from tests.agent.processes import described, with_environment
from tests.agent.test_identity import CRI, PUBLISHER, bundle
from tests.targets_run import Target

ID = "fedcba9876543210" * 4


def identifier(settings: Settings | None = None) -> Identifier:
    return Identifier(settings or Settings(), Pods("/nowhere"))


def test_what_an_sdk_publishes_is_read_within_bounds() -> None:
    message = process_context({"service.version": "2"}).hex()
    with Target.start(Path(sys.executable), str(PUBLISHER), message, ready=None) as publisher:
        publisher.ask("right", "published")
        assert published_attributes(publisher.pid) == {"service.version": "2"}
        about = described(publisher.pid, module_version="v9")
        assert identifier().verdict(about).identity.version == "2"
        for bounded in (
            mock.patch.object(otel_context, "MAX_PAYLOAD_BYTES", 0),
            mock.patch.object(otel_context, "MAX_MAPPINGS", 0),
            mock.patch.object(otel_context, "MAX_MAPS_BYTES", 0),
        ):
            with bounded:
                assert published_attributes(publisher.pid) == {}, bounded.attribute


def test_a_variable_behind_many_others_is_found() -> None:
    with with_environment(A="x" * 9999, OTEL_SERVICE_NAME="till", EBPFPROF="off") as pid:
        found = identifier().verdict(described(pid))
    assert (found.identity.service, found.reason) == ("till", "opted-out")


def test_no_more_labels_are_made_than_backends_take() -> None:
    names = [f"V{number:02}" for number in range(30)]
    rule = '[[rules]]\naction = "labelmap"\nregex = "__meta_environment_(.*)"\nreplacement = "$1"'
    settings = parsed(f"environment = {json.dumps(names)}\n{rule}", "a")
    with with_environment(**dict.fromkeys(names, "x")) as pid:
        found = identifier(settings).verdict(described(pid)).identity.labels
    assert list(found) == names[:24]


def test_only_ids_of_containers_name_files(tmp_path: Path) -> None:
    for container in ("short", ID):
        bundle(tmp_path, CRI, container)
    files = NodeFiles(str(tmp_path))
    assert files.of("short", None) == PodNames()
    assert files.of(ID, None).pod == "web-0"


def test_few_bundles_are_kept_and_none_is_read_that_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for digit in "abc":
        bundle(tmp_path, CRI, digit * 64)
    files = NodeFiles(str(tmp_path))
    monkeypatch.setattr(kubernetes, "MAX_KEPT", 2)
    for digit in "abc":
        assert files.of(digit * 64, None).pod == "web-0"
        assert len(files._bundles) <= 2
    monkeypatch.setattr(kubernetes, "MAX_BUNDLE_BYTES", 10)
    assert NodeFiles(str(tmp_path)).of("a" * 64, None) == PodNames()


def test_the_kubelets_files_are_not_read_for_each_process(tmp_path: Path) -> None:
    logs = tmp_path / "var/log/containers"
    logs.mkdir(parents=True)
    files = NodeFiles(str(tmp_path))
    assert files.of(ID, None) == PodNames()
    (logs / f"till-x2x4q_shops_app-{ID}.log").touch()
    assert files.of(ID, None) == PodNames()
    files._read_s -= 3
    assert files.of(ID, None).pod == "till-x2x4q"


def test_annotations_that_are_too_long_are_left_out() -> None:
    data = json.dumps({"annotations": {"a": "x" * 2000, "b": "y", "c": 3}}).encode()
    assert of_bundle(data).annotations == {"b": "y"}


@pytest.mark.parametrize(
    ("names", "workload"),
    [
        (PodNames(pod="etcd-12", controller=Controller("Node", "n1")), "etcd-12"),
        (PodNames(pod="etcd-12", controller=Controller("Strange", "x")), "etcd"),
        (PodNames(pod="web-0", labels={"pod-template-hash": "abc"}), "web"),
        (PodNames(pod="web-abc-0", labels={"pod-template-hash": "abc"}), "web"),
        (PodNames(pod="x", controller=Controller("DaemonSet", "logs-b2c4d")), "logs-b2c4d"),
    ],
)
def test_a_workload_has_the_name_of_what_made_it(names: PodNames, workload: str) -> None:
    assert names.workload == workload


def test_an_annotation_that_names_a_service_comes_before_a_label(tmp_path: Path) -> None:
    labels = {"io.kubernetes.cri-o.Labels": '{"app.kubernetes.io/name": "app"}'}
    bundle(tmp_path, {**CRI, **labels, "resource.opentelemetry.io/service.name": "named"}, ID)
    settings = replace(Settings(), kubernetes_labels=True)
    with with_environment() as pid:
        about = described(pid, container=ID)
        found = Identifier(settings, Pods(str(tmp_path))).verdict(about)
    assert found.identity.service == "named"
