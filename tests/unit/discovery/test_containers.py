"""Container ids and pods, from the control groups of each runtime."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.discovery.containers import Container, container_of

ID = "4f1c0e6a" * 8
OTHER = "0b" * 32
UID = "c1d2e3f4-0a1b-4c2d-8e3f-001122334455"
UNDERSCORED = UID.replace("-", "_")
BARE = UID.replace("-", "")
POD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/docker/{ID}", Container(ID)),
        (f"/system.slice/docker-{ID}.scope", Container(ID)),
        (f"/system.slice/docker-{ID}.scope/init", Container(ID)),
        (f"/user.slice/user@1000.service/user.slice/libpod-{ID}.scope/container", Container(ID)),
        (f"/machine.slice/libpod-{ID}.scope", Container(ID)),
        (f"/system.slice/nerdctl-{ID}.scope", Container(ID)),
        (f"/../docker-{ID}.scope", Container(ID)),
        (f"/kubepods/burstable/pod{UID}/{ID}", Container(ID, UID)),
        (f"/kubepods/pod{UID}/{ID}", Container(ID, UID)),
        (f"/kubepods/besteffort/pod{BARE}/{ID}", Container(ID, UID)),
        (f"{POD}/cri-containerd-{ID}.scope", Container(ID, UID)),
        (f"{POD}/crio-{ID}.scope", Container(ID, UID)),
        (f"{POD}/crio-{ID}.scope/container", Container(ID, UID)),
        (f"{POD}/docker-{ID}.scope", Container(ID, UID)),
        (
            f"/system.slice/containerd.service/kubepods-pod{UNDERSCORED}.slice:cri-containerd:{ID}",
            Container(ID, UID),
        ),
        (f"/docker/{OTHER}/kubelet/kubepods/pod{UID}/{ID}", Container(ID, UID)),
        (f"/docker/{OTHER}/docker/{ID}", Container(ID)),
        (f"/ecs/0123456789abcdef0123456789abcdef/{ID}", Container(ID)),
        (f"/ecs/{BARE}/{BARE}-1234567890", Container(f"{BARE}-1234567890")),
        ("/lxc/web-1", Container("web-1")),
        ("/lxc.payload.web-1", Container("web-1")),
        ("/lxc.payload.web-1/system.slice/nginx.service", Container("web-1")),
        ("/lxc.payload/web-1/init.scope", Container("web-1")),
        ("/buildkit/abcdefghijklmnopqrstuvwxy", Container("abcdefghijklmnopqrstuvwxy")),
    ],
)
def test_each_runtime_is_known(path: str, expected: Container) -> None:
    assert container_of(f"0::{path}\n") == expected


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/system.slice/ssh.service",
        "/user.slice/user-1000.slice/session-4.scope",
        f"/machine.slice/libpod-conmon-{ID}.scope",
        f"{POD}/crio-conmon-{ID}.scope",
        f"{POD}/crio-conmon-{ID}.scope/container",
        "/lxc.monitor.web-1",
        f"/docker/{ID[:-1]}",
        f"/docker/{ID}0",
        f"/docker/{ID.upper()}",
        f"/system.slice/docker-{ID}.service.d",
        "/lxc",
        "/lxc/",
        "/buildkit",
        f"/kubepods/pod{UID}",
    ],
)
def test_other_control_groups_are_not_containers(path: str) -> None:
    assert container_of(f"0::{path}\n") is None


def test_any_of_several_hierarchies_can_name_the_container() -> None:
    text = (
        f"12:pids:/system.slice\n11:name=systemd:/docker/{ID}\n3:cpu,cpuacct:/docker/{ID}\n0::/\n"
    )
    assert container_of(text) == Container(ID)


@pytest.mark.parametrize(
    "text", ["", "\n", "nonsense", ":", "::", "0::\x1b[31m/docker/x", "0:\n::"]
)
def test_nonsense_is_not_a_container(text: str) -> None:
    assert container_of(text) is None


@given(st.text(alphabet="0a/:-_.podlxc\n\x1b", max_size=300))
def test_container_ids_are_always_printable(text: str) -> None:
    container = container_of(text)
    assert container is None or (container.id.isprintable() and "/" not in container.id)
