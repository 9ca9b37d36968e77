"""Ways in through what shows which service a process is: its environment, OTEL_CTX, bundles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from ebpfprof.agent.identity.api_server import MOST_PODS, pods_in
from ebpfprof.agent.identity.attributes import (
    MAX_ATTRIBUTES,
    NoAttributesError,
    of_process_context,
    of_variable,
)
from ebpfprof.agent.identity.cri import MOST_CONTAINERS, pods_of, runtime_of
from ebpfprof.agent.identity.environment import variables
from ebpfprof.agent.identity.kubernetes import of_bundle
from ebpfprof.agent.identity.otel_context import addresses
from ebpfprof.agent.identity.pod_source import KnownPods, PodSourceError
from ebpfprof.agent.identity.service import ProcessFacts, judged
from ebpfprof.agent.identity.unary_calls import CallError, UnaryCalls
from ebpfprof.agent.settings_file import parsed
from tests.agent import made_up_runtime as runtime
from tests.agent.contexts import process_context
from tests.agent.processes import SHOP
from tests.fuzz.driver import Parser

_RULES: Final = parsed(
    """
[[rules]]
action = "labelmap"
regex = "__meta_(.*)"
[[rules]]
source = ["service", "otel_a"]
regex = "(.*);(.*)"
target = "service"
replacement = "$2/$1"
""",
    "rules.toml",
)


def check_texts(texts: Mapping[str, str]) -> None:
    """What a rule and a sink get of these is printable and not too long."""
    labels = {f"__meta_otel_{key}": value for key, value in texts.items()}
    found = judged(ProcessFacts(labels), _RULES, SHOP).identity
    assert found.service
    for text in (found.service, *found.labels.values()):
        assert text.isprintable()
        assert 0 < len(text) <= 1024


def ask_context(data: bytes) -> None:
    found = of_process_context(data)
    assert len(found) <= MAX_ATTRIBUTES
    check_texts(found)


def ask_environment(data: bytes) -> None:
    found = variables(data)
    check_texts(found)
    check_texts(of_variable(found.get("OTEL_RESOURCE_ATTRIBUTES", "")))


def ask_bundle(data: bytes) -> None:
    found = of_bundle(data)
    check_texts({**found.annotations, **found.labels, "a": found.pod, "b": found.workload})


def ask_context_maps(data: bytes) -> None:
    assert all(0 <= address < 1 << 64 for address in addresses(data))


def check_pods(pods: KnownPods) -> None:
    """There are not too many pods, and their texts can be used."""
    assert len(pods.by_uid) <= MOST_PODS
    assert len(pods.by_container) <= 2 * MOST_CONTAINERS
    for each in (*pods.by_container.values(), *pods.by_uid.values()):
        check_texts({**each.annotations, **each.labels, "a": each.pod, "b": each.workload})


def ask_api_server(data: bytes) -> None:
    check_pods(pods_in(data))


def ask_runtime(data: bytes) -> None:
    at = data[0] % (len(data) or 1) if data else 0
    with suppress(PodSourceError):  # a typed error is an answer, too
        assert runtime_of(data)
    check_pods(pods_of(data[1:at], data[at:]))
    check_pods(pods_of(data[1:], data[1:]))


def ask_calls(data: bytes) -> None:
    """What a server may send: the first byte says in pieces of which size it comes."""
    calls = UnaryCalls(1 << 16)
    calls.begin("/runtime.v1.RuntimeService/Version", b"")
    size = data[0] + 1 if data else 1
    for at in range(1, len(data), size):
        if (answer := calls.take(data[at : at + size])) is not None:
            assert len(answer) <= 1 << 16
            return
        calls.to_send()


def call_seeds() -> Sequence[bytes]:
    """What a made-up runtime sends to the only call of a connection."""
    return tuple(
        bytes([255]) + runtime.sent(each)
        for each in (
            runtime.said(runtime.message(runtime.version())),
            runtime.refused("12", "unknown%20service"),
            runtime.reset,
            runtime.goodbye,
        )
    )


def pod_seeds() -> Sequence[bytes]:
    """What a runtime knows of a pod: its sandbox, then its container."""
    about = {"id": "s1", "name": "till-0", "namespace": "shops", "uid": "u1"}
    more = {"labels": {"app": "till"}, "annotations": {"ebpfprof/profile": "off"}}
    sandbox = runtime.sandboxes({**about, **more})
    found = (sandbox, runtime.containers(("c1", "s1", "main")))
    return (bytes([len(sandbox) + 1]) + b"".join(found), bytes([1]) + runtime.version())


IDENTITY: Final = (
    Parser(
        "api-server-lists",
        ("ebpfprof.agent.identity.api_server", "ebpfprof.agent.identity.workloads"),
        ask_api_server,
        lambda: (
            json.dumps(
                {
                    "items": [
                        {
                            "metadata": {
                                "name": "till-6f7-x2x4q",
                                "uid": "u1",
                                "labels": {"pod-template-hash": "6f7"},
                                "annotations": {"kubernetes.io/config.hash": "0" * 32},
                                "ownerReferences": [
                                    {"controller": True, "kind": kind, "name": "till-6f7"}
                                ],
                            }
                        }
                        for kind in ("ReplicaSet", "Job", "Node")
                    ]
                }
            ).encode(),
        ),
        allowed=(PodSourceError,),
    ),
    Parser(
        "runtime-pods",
        ("ebpfprof.agent.identity.cri",),
        ask_runtime,
        pod_seeds,
        allowed=(PodSourceError,),
    ),
    Parser(
        "runtime-calls",
        ("ebpfprof.agent.identity.unary_calls",),
        ask_calls,
        call_seeds,
        allowed=(CallError,),
    ),
    Parser(
        "process-contexts",
        ("ebpfprof.agent.identity.attributes", "ebpfprof.agent.identity.service"),
        ask_context,
        lambda: (
            process_context({"service.name": "shop", "a": 7, "b": True, "c": "ü" * 40}),
            process_context({f"k{n}": "v" for n in range(200)}),
        ),
        allowed=(NoAttributesError,),
    ),
    Parser(
        "environments",
        ("ebpfprof.agent.identity.environment", "ebpfprof.agent.identity.attributes"),
        ask_environment,
        lambda: (
            b"PATH=/bin\0OTEL_SERVICE_NAME=shop\0"
            b"OTEL_RESOURCE_ATTRIBUTES=service.name=a%20b,service.version=7\0EBPFPROF=off\0",
        ),
        allowed=(),
    ),
    Parser(
        "bundles",
        ("ebpfprof.agent.identity.kubernetes",),
        ask_bundle,
        lambda: (
            json.dumps(
                {
                    "annotations": {
                        "io.kubernetes.cri.sandbox-name": "till-7d4b9cf6c5-x2x4q",
                        "io.kubernetes.cri-o.Labels": '{"app": "x"}',
                    }
                }
            ).encode(),
        ),
        allowed=(),
    ),
    Parser(
        "context-maps",
        ("ebpfprof.agent.identity.otel_context",),
        ask_context_maps,
        lambda: (b"7f00-8f00 rw-p 00000000 00:01 7  /memfd:OTEL_CTX (deleted)\n",),
        allowed=(),
    ),
)
