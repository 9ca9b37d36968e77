"""The table [kubernetes] of the agent's file: each mistake gets a sentence with its line."""

from __future__ import annotations

import sys

import pytest

from ebpfprof.agent.settings_file import parsed
from ebpfprof.errors import BadConfig

API_HEAD = '[kubernetes]\napi_server = "https://10.0.0.1:6443"\n'
WRONG = [
    ("kubernetes = 1", "a.toml:1: kubernetes must be a table, [kubernetes]."),
    (
        "[kubernetes]\ncri_sock = 1",
        "a.toml:2: [kubernetes] has no setting 'cri_sock'. Did you mean cri_socket?",
    ),
    (
        '[kubernetes]\ncri_socket = "containerd.sock"',
        'a.toml:2: cri_socket must be an absolute path, such as "/run/containerd/containerd.sock", '
        'not "containerd.sock".',
    ),
    (
        f'[kubernetes]\ncri_socket = "/{"x" * 107}"',
        "a.toml:2: cri_socket can't be longer than 107 bytes, below host_root.",
    ),
    (
        f'host_root = "/{"x" * 101}"\n[kubernetes]\ncri_socket = "/run/x"',
        "a.toml:3: cri_socket can't be longer than 107 bytes, below host_root.",
    ),
    (
        "[kubernetes]\napi_server = true",
        'a.toml:2: api_server must be "in-cluster" or an address, such as '
        '"https://10.0.0.1:6443", not true.',
    ),
    (
        '[kubernetes]\napi_server = "https://till:secret@shop"',
        "a.toml:2: api_server must have no user and password: use api_token_file.",
    ),
    (
        '[kubernetes]\napi_server = "in-cluster"',
        'a.toml:2: api_server = "in-cluster" works only inside a pod (KUBERNETES_SERVICE_HOST is '
        "not set): set the address of the API server.",
    ),
    ('[kubernetes]\napi_token_file = "/x"', "a.toml:2: api_token_file needs an api_server."),
    ('[kubernetes]\napi_ca_file = "/x"', "a.toml:2: api_ca_file needs an api_server."),
    (
        API_HEAD + 'api_token_file = "/nowhere/token"',
        "a.toml:3: api_token_file: /nowhere/token can't be read: No such file or directory.",
    ),
    (
        API_HEAD + 'api_ca_file = "/nowhere/ca"',
        "a.toml:3: api_ca_file: /nowhere/ca can't be used: No such file or directory.",
    ),
    (
        API_HEAD + f'api_ca_file = "{__file__}"',
        f"a.toml:3: api_ca_file: {__file__} can't be used: NO_CERTIFICATE_OR_CRL_FOUND.",
    ),
    (
        API_HEAD.replace("https:", "http:") + 'api_ca_file = "/x"',
        "a.toml:3: api_ca_file needs an api_server with https.",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_each_mistake_gets_a_sentence_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parsed(text, "a.toml")
    assert str(caught.value) == sentence


def test_a_pod_without_its_service_account_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(BadConfig) as caught:
        parsed('[kubernetes]\napi_server = "in-cluster"', "a.toml")
    assert str(caught.value) == (
        "a.toml:2: api_server: /var/run/secrets/kubernetes.io/serviceaccount/token can't be read: "
        "No such file or directory."
    )


def test_a_socket_of_a_runtime_needs_h2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h2", None)  # as if it were not installed
    with pytest.raises(BadConfig) as caught:
        parsed('[kubernetes]\ncri_socket = "/x"', "a.toml")
    assert str(caught.value) == (
        "a.toml:2: cri_socket needs the Python package h2: apt-get install python3-h2, or install "
        "ebpfprof[cri] instead of ebpfprof."
    )
