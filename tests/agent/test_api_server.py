"""Pods by the API server: what it is asked, what it says, and what it says when it can't."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.agent.identity import api_server
from ebpfprof.agent.identity.api_server import ApiServer, pods_in
from ebpfprof.agent.identity.pod_source import PodSourceError
from ebpfprof.agent.identity.workloads import Controller
from ebpfprof.agent.settings import SinkSettings
from tests.backends.ports import free_port
from tests.backends.scripted_server import BROKEN, Step, answer
from tests.backends.strict_api_server import StrictApiServer, pod

UID = "11111111-2222-3333-4444-555555555555"
TILL = pod(
    "till-7d4b9cf6c5-x2x4q",
    uid=UID,
    labels={"pod-template-hash": "7d4b9cf6c5"},
    annotations={"ebpfprof/profile": "off"},
    controller=("ReplicaSet", "till-7d4b9cf6c5"),
)
QUERY = "fieldSelector=spec.nodeName%3Dn1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StrictApiServer]:
    with StrictApiServer(tmp_path, TILL, pod("far", uid="u2", node="n2")) as made:
        yield made


def client(server: StrictApiServer, node: str = "n1", **more: object) -> ApiServer:
    found = SinkSettings(
        *("", ""),
        url=server.url,
        bearer_token_file=str(server.token_file),
        ca_file=str(server.ca_file),
        timeout=30.0,
    )
    return ApiServer(replace(found, **more), node)  # type: ignore[arg-type]  # any of its fields


def refusal(asked: ApiServer) -> PodSourceError:
    with pytest.raises(PodSourceError) as caught:
        asked.ask()
    assert str(caught.value).isprintable()
    return caught.value


def test_the_pods_of_this_node_are_listed_by_their_metadata(server: StrictApiServer) -> None:
    asked = client(server)
    for _ in range(2):
        found = asked.ask()
    asked.close()
    assert list(found.by_uid) == [UID]
    till = found.by_uid[UID]
    assert (till.namespace, till.pod, till.uid) == ("shops", "till-7d4b9cf6c5-x2x4q", UID)
    assert dict(till.annotations) == {"ebpfprof/profile": "off"}
    assert till.controller == Controller("ReplicaSet", "till-7d4b9cf6c5")
    assert till.workload == "till"
    assert server.asked == [f"{QUERY}&resourceVersion=0"] * 2
    assert server.connections == [0, 0]
    assert asked.name == f"The API server at {server.url}"


def test_a_token_that_was_renewed_is_read_again(server: StrictApiServer) -> None:
    asked = client(server)
    asked.ask()
    server.tokens = {"second-token"}
    assert str(refusal(asked)) == ("it rejected the token (Unauthorized): renew api_token_file")
    server.token_file.write_text("second-token")
    assert asked.ask().by_uid
    server.token_file.unlink()
    assert str(refusal(asked)) == f"{server.token_file} can't be read: No such file or directory"


def test_a_right_that_is_missing_is_reported(server: StrictApiServer) -> None:
    server.may_list = False
    assert str(refusal(client(server))) == (
        'listing pods is not allowed (pods is forbidden: User "system:serviceaccount:ebpfprof:'
        'ebpfprof" cannot list resource "pods" in API group "" at the cluster scope): bind a '
        "ClusterRole with the verb list on pods to the agent's service account, as the chart does"
    )


def test_a_list_that_is_gone_is_asked_for_afresh(server: StrictApiServer) -> None:
    server.has_cache = False
    assert list(client(server).ask().by_uid) == [UID]
    assert server.asked == [f"{QUERY}&resourceVersion=0", QUERY]


def test_a_node_without_a_pod_is_misnamed(server: StrictApiServer) -> None:
    assert str(refusal(client(server, node="n 3&x=1"))) == (
        "it has no pod on node 'n 3&x=1': set node, or NODE_NAME, to the node's name in Kubernetes"
    )


@pytest.mark.parametrize(
    ("step", "why"),
    [
        *BROKEN,
        (answer(503, b"etcd \x1b is away"), "it is not available: 503 (etcd \\x1b is away)"),
        (answer(500), "it is not available: 500"),
        (
            answer(403, b'{"kind":"Status","message":"' + b"x" * 400 + b'"}'),
            "listing pods is not allowed (xxxx",
        ),
        (
            answer(404, b'{"message": 7}'),
            'the status 404 ({"message": 7}) is not one of an API server',
        ),
        (answer(302, location="http://x/"), "the status 302 is not one of an API server"),
        (answer(200), "the response is not a list of pods"),
        (answer(200, b"<html>"), "the response is not a list of pods"),
        (answer(200, b'{"items": {}}'), "the response is not a list of pods"),
        (answer(200, b"[" * 100_000), "the response is not a list of pods"),
        (answer(200, b'{"items": [1]}'), "the response has a pod without metadata"),
        (answer(200, b" " * 200_000), "the response is longer than 0 MiB"),
    ],
)
def test_faults_are_reported_and_the_next_answer_counts(
    server: StrictApiServer, monkeypatch: pytest.MonkeyPatch, step: Step, why: str
) -> None:
    monkeypatch.setattr(api_server, "MOST_BYTES", 150_000)
    server.steps = [step]
    asked = client(server, timeout=0.5 if "0.5 s" in why else 30.0)
    assert str(refusal(asked)).startswith(why)
    assert client(server).ask().by_uid


def test_how_long_it_wants_us_to_wait_is_known(server: StrictApiServer) -> None:
    server.steps = [answer(429, b"slow down", retry_after="77")]
    assert refusal(client(server)).after_s == 77.0


def test_a_server_that_is_away_or_another_is_reported(
    server: StrictApiServer, tmp_path: Path
) -> None:
    away = client(server, url=f"https://127.0.0.1:{free_port()}")
    assert str(refusal(away)) == "cannot connect: Connection refused"
    untrusted = client(server, ca_file="")
    assert "certificate verify failed" in str(refusal(untrusted))


def metadata(**more: object) -> bytes:
    return json.dumps({"items": [{"metadata": {"name": "p", "uid": "u", **more}}]}).encode()


def test_a_static_pod_has_the_uid_that_the_node_calls_it_by() -> None:
    hash_ = "aaaabbbbccccddddeeeeffff00001111"
    found = pods_in(metadata(annotations={"kubernetes.io/config.hash": hash_})).by_uid
    (key,) = found
    assert key == "aaaabbbb-cccc-dddd-eeee-ffff00001111"
    assert (found[key].pod, found[key].uid) == ("p", "u")


@pytest.mark.parametrize(
    "more",
    [
        {"labels": 7, "annotations": ["x"], "ownerReferences": {}},
        {"labels": {"a": 1, "b": "x" * 5000}, "ownerReferences": [3, {"controller": "true"}]},
        {"ownerReferences": [{"controller": True, "kind": 3, "name": []}]},
        {"namespace": {}},
    ],
)
def test_odd_metadata_is_left_out(more: dict[str, Any]) -> None:
    (found,) = pods_in(metadata(**more)).by_uid.values()
    assert (found.pod, found.namespace) == ("p", "")
    assert (dict(found.labels), dict(found.annotations)) == ({}, {})
    assert found.controller == Controller()


def test_there_is_a_bound_for_pods() -> None:
    items = [{"metadata": {"name": "p", "uid": f"u{n}"}} for n in range(5000)]
    assert len(pods_in(json.dumps({"items": items}).encode()).by_uid) == 4096
    assert pods_in(b'{"items": null}').by_uid == {}


@pytest.mark.parametrize(
    ("name", "labels", "controller", "workload"),
    [
        ("a-6f7-x2x4q", {"pod-template-hash": "6f7"}, ("ReplicaSet", "a-6f7"), "a"),
        ("a-6f7-x2x4q", {"rollouts-pod-template-hash": "6f7"}, ("ReplicaSet", "a-6f7"), "a"),
        ("set-x2x4q", {}, ("ReplicaSet", "set"), "set"),
        ("a-x2x4q-x2x4q", {}, ("ReplicaSet", "a-x2x4q"), "a-x2x4q"),
        ("db-0", {}, ("StatefulSet", "db"), "db"),
        ("logs-x2x4q", {}, ("DaemonSet", "logs"), "logs"),
        ("backup-29384756-x2x4q", {}, ("Job", "backup-29384756"), "backup"),
        ("migrate-7-x2x4q", {}, ("Job", "migrate-7"), "migrate-7"),
        ("etcd-x2x4q", {}, ("Node", "x2x4q"), "etcd-x2x4q"),
        ("kafka-2", {}, ("StrimziPodSet", "kafka"), "kafka"),
        ("till-x2x4q", {"pod-template-hash": "zz"}, None, "till"),
        ("till-zz-x2x4q", {"pod-template-hash": "zz"}, None, "till"),
        ("-zz-x2x4q", {"pod-template-hash": "zz"}, None, "-zz-x2x4q"),
    ],
)
def test_what_people_deployed_is_known_by_the_controller(
    name: str, labels: dict[str, str], controller: tuple[str, str] | None, workload: str
) -> None:
    made = pod(name, uid="u", labels=labels, controller=controller)
    found = pods_in(json.dumps({"items": [made]}).encode()).by_uid["u"]
    assert found.workload == workload
