"""Who is asked for a pod, when, and whose answer counts; and what `agent --check` shows of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.agent.identity.kubernetes import PodNames
from ebpfprof.agent.identity.pod_source import AskedSource, KnownPods, PodSourceError
from ebpfprof.agent.identity.pods import Pods, pods_of_node
from ebpfprof.agent.identity.service import Identifier, Verdict
from ebpfprof.agent.identity.workloads import Controller
from ebpfprof.agent.settings import Settings
from ebpfprof.agent.settings_file import parsed
from ebpfprof.discovery.processes import GoProcess
from tests.agent import made_up_runtime as runtime
from tests.agent.made_up_runtime import MadeUpRuntime, message, said
from tests.agent.processes import SHOP
from tests.agent.running import RunningAgent, settings
from tests.backends.scripted_server import answer
from tests.backends.strict_api_server import StrictApiServer, pod
from tests.kernel.programs import program
from tests.kernel.verbs import verb, with_file
from tests.targets_run import Target

ID, SANDBOX = "c" * 64, "5" * 64
UID = "11111111-2222-3333-4444-555555555555"
NAME = "till-7d4b9cf6c5-x2x4q"
IN_POD = replace(SHOP, container=ID, pod=UID, started_ns=100 * 10**9)
CALLED = "The made-up source gives no pods: "


class MadeUpSource:
    """Answers what the test says; `clock` is what the test says, too."""

    source, name = "made_up", "The made-up source"

    def __init__(self, by_container: dict[str, PodNames] | None = None) -> None:
        self.now_s = 1000.0
        self.known = KnownPods(by_container or {})
        self.error: PodSourceError | None = None
        self.asked = 0
        self.messages: list[str] = []
        self.is_closed = False

    def may_know(self, process: GoProcess) -> bool:
        return process.container is not None

    def ask(self) -> KnownPods:
        self.asked += 1
        if self.error:
            raise self.error
        return self.known

    def close(self) -> None:
        self.is_closed = True

    def opened(self) -> AskedSource:
        return AskedSource(self, self.messages.append, lambda: self.now_s)


def test_an_answer_counts_for_minutes_and_for_all_older_processes() -> None:
    made = MadeUpSource({ID: PodNames(pod="till")})
    source = made.opened()
    for _ in range(3):
        found = source.of(IN_POD)
        assert found
        assert found.pod == "till"
        assert source.of(replace(IN_POD, container="e" * 64, pod=None)) is None
    assert source.of(SHOP) is None  # it is in no container
    assert made.asked == 1
    made.now_s += 299
    source.of(IN_POD)
    assert made.asked == 1
    made.now_s += 2
    source.of(IN_POD)
    assert made.asked == 2


def test_a_pod_that_is_newer_than_the_answer_is_asked_for_but_once_in_a_second() -> None:
    made = MadeUpSource({ID: PodNames(pod="till")})
    source = made.opened()
    source.of(IN_POD)
    new = replace(IN_POD, container="d" * 64, started_ns=1003 * 10**9)
    made.now_s = 1004.0
    made.known = KnownPods({**made.known.by_container, "d" * 64: PodNames(pod="late")})
    assert source.of(new) == PodNames(pod="late")
    assert made.asked == 2
    # Its cache may be a little behind: a container that is not there yet may be soon, but no later.
    unknown = replace(new, container="b" * 64)
    for now_s, asked in ((1004.9, 2), (1005.0, 3), (1005.5, 3), (1006.0, 3), (1100.0, 3)):
        made.now_s = now_s
        assert source.of(unknown) is None
        assert made.asked == asked, now_s


def test_a_source_that_fails_is_reported_once_and_left_alone_for_longer_and_longer() -> None:
    made = MadeUpSource()
    made.error = PodSourceError("it is away")
    source = made.opened()
    for pause_s in (5, 10, 20, 40, 80, 160, 300, 300):
        asked = made.asked
        for _ in range(3):
            assert source.of(IN_POD) is None
        assert made.asked == asked + 1
        made.now_s += pause_s - 0.5
        source.of(IN_POD)
        assert made.asked == asked + 1
        made.now_s += 0.5
    ending = ". Using earlier responses and the node's own files until it responds."
    assert made.messages == [f"{CALLED}it is away{ending}"]
    made.error = PodSourceError("it is lost", after_s=60.0)
    source.of(IN_POD)
    assert made.messages[1:] == [f"{CALLED}it is lost{ending}"]
    made.error, made.known = None, KnownPods({ID: PodNames(pod="till")})
    made.now_s += 300
    assert source.of(IN_POD) == PodNames(pod="till")
    assert made.messages[2:] == ["The made-up source responds again."]
    counts = source.counts
    assert (counts.answered, counts.failed) == (1, 9)
    # What it said before counts while it is away; that it is so again is reported again.
    made.error = PodSourceError("it is lost")
    made.now_s += 301
    assert source.of(IN_POD) == PodNames(pod="till")
    assert made.messages[3:] == [f"{CALLED}it is lost{ending}"]


def test_a_source_is_not_asked_before_it_wants_to_be() -> None:
    made = MadeUpSource()
    made.error = PodSourceError("it is busy", after_s=60.0)
    source = made.opened()
    for now_s, asked in ((1000, 1), (1059, 1), (1060, 2)):
        made.now_s = now_s
        source.of(IN_POD)
        assert made.asked == asked


def test_the_first_that_knows_a_pod_has_its_labels_and_annotations(tmp_path: Path) -> None:
    folder = tmp_path / f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}"
    folder.mkdir(parents=True)
    names = {"sandbox-name": NAME, "sandbox-namespace": "shops", "container-name": "file"}
    annotations = {f"io.kubernetes.cri.{key}": value for key, value in names.items()}
    bundle = {"annotations": {**annotations, "ebpfprof/profile": "off"}}
    (folder / "config.json").write_text(json.dumps(bundle))
    first = MadeUpSource()
    second = MadeUpSource({ID: PodNames("shops", NAME, "second", "u2", {"b": "2"}, {"l": "2"})})
    pods = Pods(str(tmp_path), [first.opened(), second.opened()])
    assert pods.of(SHOP) == PodNames()
    found = pods.of(IN_POD)
    assert (found.pod, found.container, found.uid) == (NAME, "second", "u2")
    assert (dict(found.annotations), dict(found.labels)) == ({"b": "2"}, {"l": "2"})
    first.known = KnownPods(
        {}, {UID: PodNames("shops", NAME, "", UID, {}, {}, Controller("Job", "x"))}
    )
    first.now_s = 2000.0
    found = pods.of(IN_POD)
    # An annotation that was taken back is none, whatever the others say.
    assert (dict(found.annotations), found.container, found.workload) == ({}, "second", "x")
    assert (found.pod, found.namespace, found.uid) == (NAME, "shops", UID)
    pods.close()
    assert (first.is_closed, second.is_closed) == (True, True)
    alone = Pods(str(tmp_path)).of(IN_POD)
    assert alone.annotations["ebpfprof/profile"] == "off"


def verdict(settings: str, process: GoProcess = IN_POD) -> Verdict:
    """Who a process is, by a file with these settings."""
    found = parsed(f'node = "n1"\n{settings}', "a.toml")
    pods = pods_of_node(found, lambda _: None)
    try:
        return Identifier(found, pods).verdict(process)
    finally:
        pods.close()


def of_server(server: StrictApiServer) -> str:
    return (
        f'[kubernetes]\napi_server = "{server.url}"\napi_ca_file = "{server.ca_file}"\n'
        f'api_token_file = "{server.token_file}"\n'
    )


ANNOTATION = {"resource.opentelemetry.io/service.name": "annotated"}
APP = {"app.kubernetes.io/instance": "till-eu", "app.kubernetes.io/name": "till"}
LABELS = "kubernetes_labels = true\n"


@pytest.mark.parametrize(
    ("settings", "annotations", "labels", "controller", "service"),
    [
        ("", ANNOTATION, APP, ("StatefulSet", "db"), "annotated"),
        (LABELS, ANNOTATION, APP, ("StatefulSet", "db"), "annotated"),
        (LABELS, {}, APP, ("StatefulSet", "db"), "till-eu"),
        (LABELS, {}, {"app.kubernetes.io/name": "till"}, ("StatefulSet", "db"), "till"),
        ("", {}, APP, ("StatefulSet", "db"), "db"),
        (LABELS, {}, {}, ("CloneSet", "x"), "alone"),
    ],
)
def test_services_are_named_in_the_order_of_opentelemetry(
    tmp_path: Path,
    settings: str,
    annotations: dict[str, str],
    labels: dict[str, str],
    controller: tuple[str, str],
    service: str,
) -> None:
    made = pod("alone", uid=UID, annotations=annotations, labels=labels, controller=controller)
    with StrictApiServer(tmp_path, made) as server:
        found = verdict(settings + of_server(server)).identity
    assert (found.service, found.namespace, found.pod) == (service, "shops", "alone")


@pytest.mark.parametrize("source", ["cri", "api_server"])
def test_a_pod_can_opt_out_and_rules_see_it_by_all_sources(tmp_path: Path, source: str) -> None:
    rules = (
        '[[rules]]\naction = "labelmap"\nregex = "__meta_kubernetes_pod_(.*)"\n'
        'replacement = "k_$1"\n'
    )
    off = {"ebpfprof/profile": " Off"}
    about = {"name": NAME, "namespace": "shops", "uid": UID, "labels": {"team": "till"}}
    sandboxes = runtime.sandboxes({**about, "id": SANDBOX, "annotations": off})
    answers = {
        "Version": said(message(runtime.version())),
        "ListPodSandbox": said(message(sandboxes)),
        "ListContainers": said(message(runtime.containers((ID, SANDBOX, "main")))),
    }
    made = pod(
        NAME, uid=UID, annotations=off, labels={"team": "till"}, controller=("ReplicaSet", "x")
    )
    with StrictApiServer(tmp_path, made) as server, MadeUpRuntime(tmp_path, answers) as cri:
        asked = f'[kubernetes]\ncri_socket = "{cri.socket}"\n'
        found = verdict((asked if source == "cri" else of_server(server)) + rules)
    assert found.reason == "opted-out"
    assert found.why_not == "its pod has the annotation ebpfprof/profile"
    labels = {name: each for name, each in found.identity.labels.items() if name != "k_uid"}
    known = {"k_name": NAME, "k_label_team": "till", "k_annotation_ebpfprof_profile": "Off"}
    controller = {"k_controller_kind": "ReplicaSet", "k_controller_name": "x"}
    assert labels == (known if source == "cri" else {**known, **controller})
    assert found.identity.container == ("main" if source == "cri" else "")


def test_check_shows_what_the_sources_say_and_which_do_not_answer(tmp_path: Path) -> None:
    config, cgroup = tmp_path / "agent.toml", tmp_path / "cgroup"
    cgroup.write_text(f"0::/kubepods/burstable/pod{UID}/{ID}\n")
    made = pod(NAME, uid=UID, controller=("Deployment", "from-server"))
    with (
        Target.start(program("steps")) as target,
        StrictApiServer(tmp_path, made) as server,
    ):
        config.write_text(
            f'node = "n1"\n{of_server(server)}cri_socket = "{tmp_path}/no\\u0007socket"\n'
        )
        command = with_file(cgroup, f"/proc/{target.pid}/cgroup")
        checked = verb("agent", "--check", "--config", str(config), command=command)
        server.steps = [answer(503, b"busy")]
        busy = verb("agent", "--check", "--config", str(config))  # no process is in a pod
    shown = f"{tmp_path}/no\\x07socket"
    ending = "Using earlier responses and the node's own files until it responds.\n"
    away = f"ebpfprof: The container runtime at {shown} gives no pods: No such file or directory. "
    assert checked.code == 0
    assert checked.stderr.startswith(away + ending)
    assert f"The API server at {server.url} knows 1 pod here.\n" in checked.stdout
    (row,) = [line for line in checked.stdout.splitlines() if line.startswith(f"{target.pid} ")]
    assert row.split()[1:4] == ["steps", "from-server", "shops"]
    assert f'api_server = "{server.url}"' in checked.stdout
    assert busy.code == 0
    assert f"at {server.url} gives no pods: it is not available: 503 (busy). " in busy.stderr
    assert "knows" not in busy.stdout


def test_an_agent_asks_the_api_server_and_counts_it(tmp_path: Path) -> None:
    cgroup = tmp_path / "cgroup"
    cgroup.write_text(f"0::/kubepods/burstable/pod{UID}/{ID}\n")
    made = pod(NAME, uid=UID, controller=("Deployment", "from-server"))
    with (
        Target.start(program("steps"), env={"AGENT_TEST": str(tmp_path)}) as target,
        StrictApiServer(tmp_path, made) as server,
    ):
        head, *rest = settings(tmp_path, node="n1").partition("[ring]")
        command = (*with_file(cgroup, f"/proc/{target.pid}/cgroup"), "agent")
        text = head + of_server(server) + "".join(rest)
        with RunningAgent(tmp_path, text, command=command) as agent:
            (first, *_) = agent.await_windows(2, "from-server")
            answered = {"outcome": "answered", "source": "api_server"}
            assert agent.metric("ebpfprof_pod_source_requests_total", **answered) == 1
            failed = {"outcome": "failed", "source": "api_server"}
            assert agent.metric("ebpfprof_pod_source_requests_total", **failed) == 0
            assert agent.metric("ebpfprof_pod_source_pods", source="api_server") == 1
            assert agent.end() == 0
    assert (first.line["identity"]["pod"], first.line["identity"]["node"]) == (NAME, "n1")
    assert len(server.asked) == 1


def test_the_pods_own_service_account_is_used_in_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StrictApiServer(tmp_path, pod("alone", uid=UID)) as server:
        server.ca_file.rename(tmp_path / "ca.crt")
        host, _, port = server.url.removeprefix("https://").partition(":")
        monkeypatch.setattr("ebpfprof.agent.identity.pods.SERVICE_ACCOUNT", str(tmp_path))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        found = verdict('[kubernetes]\napi_server = "in-cluster"').identity
    assert found.pod == "alone"


def test_no_source_is_asked_unless_the_settings_say_so() -> None:
    assert pods_of_node(Settings(), lambda _: None).sources == ()
