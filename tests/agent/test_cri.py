"""The container runtime's socket: what it says of pods, and what listens there instead."""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from ebpfprof.agent.identity import cri
from ebpfprof.agent.identity.cri import CriSocket, pods_of
from ebpfprof.agent.identity.pod_source import PodSourceError
from ebpfprof.agent.identity.unary_calls import CallError, CallSocket, UnaryCalls
from tests.agent import made_up_runtime as runtime
from tests.agent.made_up_runtime import Answer, MadeUpRuntime, message, refused, said

POD = {
    "id": "s" * 64,
    "name": "till-7d4b9cf6c5-x2x4q",
    "namespace": "shops",
    "uid": "11111111222233334444555555555555",
    "labels": {"app": "till"},
    "annotations": {"ebpfprof/profile": "off", "long": "x" * 5000},
}
RIGHT = {
    "Version": said(message(runtime.version())),
    "ListPodSandbox": said(message(runtime.sandboxes(POD))),
    "ListContainers": said(message(runtime.containers(("c" * 64, "s" * 64, "main")))),
}


def test_pods_have_names_labels_and_annotations(tmp_path: Path) -> None:
    with MadeUpRuntime(tmp_path, RIGHT) as made:
        asked = CriSocket(made.socket)
        found = asked.ask()
        assert made.asked == ["Version", "ListPodSandbox", "ListContainers"]
    assert asked.name == f"The container runtime at {made.socket} (made-up 7)"
    pod = found.by_container["c" * 64]
    assert (pod.pod, pod.namespace, pod.container) == (POD["name"], "shops", "main")
    assert pod.uid == "11111111-2222-3333-4444-555555555555"
    assert dict(pod.labels) == {"app": "till"}
    assert dict(pod.annotations) == {"ebpfprof/profile": "off"}
    of_sandbox = found.by_container["s" * 64]
    assert (of_sandbox.pod, of_sandbox.container) == (POD["name"], "")
    assert found.by_uid == {pod.uid: of_sandbox}


REFUSED = "it refused the call"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (runtime.hang, "it did not respond within 0.3 s"),
        (runtime.reset, "it aborted the call"),
        (runtime.goodbye, "it closed the HTTP/2 connection"),
        (
            refused("12", "unknown service runtime.v1.RuntimeService%0a%1b"),
            f"{REFUSED} (UNIMPLEMENTED): unknown service runtime.v1.RuntimeService \\x1b (in "
            "Docker's own containerd, it is disabled: see disabled_plugins in "
            "/etc/containerd/config.toml)",
        ),
        (refused("7", "no"), f"{REFUSED} (PERMISSION_DENIED): no"),
        (refused("-1", ""), f"{REFUSED} (-1): "),
        (refused("0", ""), "the response has no message"),
        (refused("0", "", http="404"), "it speaks HTTP/2, but not gRPC"),
        (said(b""), "the response has no message"),
        (said(message(b"x", flag=1)), "the response is not one complete message"),
        (said(message(b"x") * 2), "the response is not one complete message"),
        (said(message(b"x" * 100)[:-1]), "the response is not one complete message"),
        (said(message(b"\xff" * 20)), "the response is not a valid CRI message"),
        (said(message(b"")), "the response has no runtime name"),
        (said(message(b"x" * 60_000)), "the response is longer than 0 MiB"),
    ],
)
def test_invalid_responses_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, why: str
) -> None:
    monkeypatch.setattr(cri, "TIMEOUT_S", 0.3 if answer is runtime.hang else 60.0)
    monkeypatch.setattr(cri, "MOST_BYTES", 50_000)
    with MadeUpRuntime(tmp_path, {**RIGHT, "Version": answer}) as made:
        with pytest.raises(PodSourceError) as caught:
            CriSocket(made.socket).ask()
        assert str(caught.value) == why


# Frames (RFC 9113, 6.5 and 6.7): one PING after the other would keep us busy for ever.
NO_HTTP2 = "it does not speak HTTP/2"
PING = struct.pack(">IBI", 8 << 8 | 6, 0, 0) + b"12345678"
SETTINGS = struct.pack(">IBI", 4, 0, 0)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", f"{NO_HTTP2}: it begins with b'HTTP/1.1 '"),
        (b"\0" * 100, f"{NO_HTTP2}: it begins with "),
        (SETTINGS[:3] + b"\x04\1\0\0\0\1", f"{NO_HTTP2}: "),
        (SETTINGS + b"\0\0\0\x77\0\0\0\0\0" * 7000, "it did not respond within 0.3 s"),
        (SETTINGS + PING, "it did not respond within 0.3 s"),
        (b"", "it closed the connection"),
    ],
)
def test_another_program_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes, why: str
) -> None:
    monkeypatch.setattr(cri, "TIMEOUT_S", 0.3)
    with MadeUpRuntime(tmp_path, raw=raw) as made:
        with pytest.raises(PodSourceError) as caught:
            CriSocket(made.socket).ask()
        assert str(caught.value).startswith(why)
        assert str(caught.value).isprintable()


def test_all_calls_together_have_one_deadline(tmp_path: Path) -> None:
    times_s = iter([0.0, 1.0])
    with (
        MadeUpRuntime(tmp_path, RIGHT) as made,
        CallSocket(
            made.socket, timeout_s=60, most_bytes=1 << 20, clock=lambda: next(times_s, 61.0)
        ) as opened,
        pytest.raises(CallError, match=r"^it did not respond within 60 s$"),
    ):
        opened.call("/runtime.v1.RuntimeService/Version", b"")


def test_an_answer_may_be_longer_than_what_is_sent_at_once() -> None:
    """A server waits until we say that we took what it sent (RFC 9113, 5.2)."""
    server = H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    calls = UnaryCalls(1 << 20)
    calls.begin("/x", b"")
    server.receive_data(calls.to_send())
    server.send_headers(1, [(":status", "200")])
    left = message(b"x" * 500_000)
    while left:
        size = min(server.local_flow_control_window(1), server.max_outbound_frame_size, len(left))
        assert size
        server.send_data(1, left[:size])
        left = left[size:]
        assert calls.take(server.data_to_send()) is None
        server.receive_data(calls.to_send())
    server.send_headers(1, [("grpc-status", "0")], end_stream=True)
    assert calls.take(server.data_to_send()) == b"x" * 500_000


def test_no_socket_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, why in (("none", "No such file or directory"), ("file", "Connection refused")):
        with pytest.raises(PodSourceError) as caught:
            CriSocket(str(tmp_path / name)).ask()
        assert str(caught.value) == why


def test_a_socket_that_takes_no_connection_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cri, "TIMEOUT_S", 0.3)
    path = str(tmp_path / "full")
    with socket.socket(socket.AF_UNIX) as full, socket.socket(socket.AF_UNIX) as first:
        full.bind(path)
        full.listen(0)
        first.connect(path)
        with pytest.raises(PodSourceError, match=r"^(it did not respond|Resource temporarily)"):
            CriSocket(path).ask()


def test_without_h2_the_way_out_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h2", None)  # as if it were not installed
    with pytest.raises(PodSourceError, match="apt-get install python3-h2"):
        CriSocket("/nowhere").ask()


def test_there_is_a_bound_for_pods_and_labels() -> None:
    many = {f"k{n}": "v" for n in range(1000)}
    pods = ({**POD, "id": f"{n}", "uid": f"u{n}", "labels": many} for n in range(10))
    found = pods_of(runtime.sandboxes(*pods), b"")
    assert {len(each.labels) for each in found.by_uid.values()} == {256}
    several = runtime.containers(*((f"c{n}", "0", "x") for n in range(5000)))
    assert len(pods_of(runtime.sandboxes({**POD, "id": "0"}), several).by_container) == 4097
