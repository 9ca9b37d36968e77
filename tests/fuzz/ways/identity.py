"""Ways in through what tells which service a process is: its environment, OTEL_CTX, bundles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from ebpfprof.agent.identity.attributes import (
    MAX_ATTRIBUTES,
    NoAttributesError,
    of_process_context,
    of_variable,
)
from ebpfprof.agent.identity.environment import variables
from ebpfprof.agent.identity.kubernetes import of_bundle
from ebpfprof.agent.identity.otel_context import addresses
from ebpfprof.agent.identity.service import ProcessFacts, judged
from ebpfprof.agent.settings_file import parsed
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
    assert all(0 <= each < 1 << 64 for each in addresses(data))


IDENTITY: Final = (
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
