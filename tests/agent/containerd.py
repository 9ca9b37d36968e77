"""A containerd of the test's own, in a folder, and pods in it as a kubelet makes them.

It takes containerd and runc. Its pods have the node's network, so there is no CNI; their image is
made here, of static Go programs.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep
from typing import Self

from ebpfprof.agent.identity.unary_calls import CallError, CallSocket
from ebpfprof.export.proto_messages import ProtoMessage
from tests.agent.cri_messages import NODE, answer_id, made, pairs
from tests.kernel.programs import program
from tests.targets_run import DEADLINE_S

IMAGE = "localhost/ebpfprof-test:1"
_SERVICE = "/runtime.v1.RuntimeService/"
_CONFIG = """\
version = 2
root = "{0}/root"
state = "{0}/node/run/containerd"
[grpc]
address = "{0}/c.sock"
[ttrpc]
address = "{0}/t.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{1}"
stream_server_port = "0"
disable_apparmor = true
restrict_oom_score_adj = true
disable_hugetlb_controller = true
tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "{0}/cni"
bin_dir = "{0}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""


@dataclass(frozen=True)
class Pod:
    """A pod that runs."""

    name: str
    namespace: str
    uid: str
    sandbox: str
    config: ProtoMessage


class Containerd:
    """A context manager: all that it started is gone at its end."""

    def __init__(self) -> None:
        self._held = tempfile.TemporaryDirectory(prefix="cri-")  # paths of sockets must be short
        self.folder = Path(self._held.name)
        self.socket = self.folder / "c.sock"
        self.node = self.folder / "node"
        """The root of a node whose /run/containerd is that of this containerd."""
        self._pods: list[Pod] = []
        self._group = f"ebpfprof-{self.folder.name}"
        (self.folder / "config.toml").write_text(_CONFIG.format(self.folder, IMAGE))
        self._log = (self.folder / "log").open("wb")
        self._process = subprocess.Popen(
            ["containerd", "--config", self.folder / "config.toml"],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def call(self, method: str, request: ProtoMessage) -> bytes:
        """Call a method of the Container Runtime Interface; fails with what it says."""
        with CallSocket(str(self.socket), timeout_s=DEADLINE_S, most_bytes=1 << 20) as connection:
            return connection.call(_SERVICE + method, request.SerializeToString())

    def run_pod(
        self,
        name: str,
        namespace: str,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Pod:
        """Start a pod without a container but its own."""
        uid = str(uuid.uuid4())
        # The labels that a kubelet adds (kuberuntime/labels.go).
        of_kubelet = {
            "io.kubernetes.pod.name": name,
            "io.kubernetes.pod.namespace": namespace,
            "io.kubernetes.pod.uid": uid,
        }
        config = made(
            "PodSandboxConfig",
            metadata=made(
                "PodSandboxMetadata",
                name=name.encode(),
                namespace=namespace.encode(),
                uid=uid.encode(),
            ),
            labels=pairs({**(labels or {}), **of_kubelet}),
            annotations=pairs(annotations or {}),
        )
        config.linux.cgroup_parent = f"/{self._group}/besteffort/pod{uid}".encode()
        config.linux.security_context.namespace_options.network = NODE
        answer = self.call("RunPodSandbox", made("RunPodSandboxRequest", config=config))
        sandbox = answer_id("RunPodSandboxResponse", "pod_sandbox_id", answer)
        self._pods.append(Pod(name, namespace, uid, sandbox, config))
        return self._pods[-1]

    def run(self, pod: Pod, name: str, command: Sequence[str], env: Mapping[str, str]) -> str:
        """Start a container, whose input stays open; its id."""
        config = made(
            "ContainerConfig",
            metadata=made("ContainerMetadata", name=name.encode()),
            image=made("ImageSpec", image=IMAGE.encode()),
            command=[each.encode() for each in command],
            envs=pairs(env),
            stdin=True,
        )
        request = made(
            "CreateContainerRequest",
            pod_sandbox_id=pod.sandbox.encode(),
            config=config,
            sandbox_config=pod.config,
        )
        answer = self.call("CreateContainer", request)
        container = answer_id("CreateContainerResponse", "container_id", answer)
        self.call("StartContainer", made("StartContainerRequest", container_id=container.encode()))
        return container

    def pid(self, container: str) -> int:
        """The pid of a container's first process."""
        task = "run/containerd/io.containerd.runtime.v2.task/k8s.io"
        return int((self.node / task / container / "init.pid").read_text())

    def remove(self, pod: Pod) -> None:
        """End a pod with its containers."""
        self._pods.remove(pod)
        request = made("PodSandboxRequest", pod_sandbox_id=pod.sandbox.encode())
        for method in ("StopPodSandbox", "RemovePodSandbox"):
            self.call(method, request)

    def __enter__(self) -> Self:
        try:
            self._await_answers()
            self._import(IMAGE, program("pause"), program("steps"))
        except BaseException:  # Ctrl-C, too: nothing may stay
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for pod in list(self._pods):
                self.remove(pod)
        finally:
            self._close()

    def _close(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)
        self._log.close()
        self._held.cleanup()
        for folder in Path("/sys/fs/cgroup").glob(f"**/{self._group}"):
            for each in (*sorted(folder.rglob("*/"), reverse=True), folder):
                with suppress(OSError):  # the kernel still has a process in it
                    each.rmdir()

    def _await_answers(self) -> None:
        until = monotonic() + DEADLINE_S
        while True:
            with suppress(CallError):  # it has only just started
                self.call("Version", made("PodSandboxRequest"))
                return
            output = (self.folder / "log").read_text()
            assert self._process.poll() is None, output
            assert monotonic() < until, output
            sleep(0.02)

    def _import(self, name: str, *programs: Path) -> None:
        """Make an image of programs, the first of which is the one that it starts."""
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{programs[0].name}"]},
            "rootfs": {"type": "layers", "diff_ids": []},
        }
        layer = _tar({each.name: each.read_bytes() for each in programs})
        config["rootfs"] = {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]}
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        archive = {
            "manifest.json": json.dumps(manifest).encode(),
            "config.json": json.dumps(config).encode(),
            "layer.tar": layer,
        }
        ctr = ("ctr", "--address", str(self.socket), "--namespace", "k8s.io")
        done = subprocess.run(
            [*ctr, "images", "import", "-"], input=_tar(archive), capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()


def _tar(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
