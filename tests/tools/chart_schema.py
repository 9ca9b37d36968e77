"""The schema of the Helm chart's values, with the agent's settings from their declarations."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ebpfprof.agent.kubernetes_settings import KubernetesSettings
from ebpfprof.agent.rules import Rule
from ebpfprof.agent.settings import RingSettings, Settings, SinkSettings
from ebpfprof.profilers.registry import options_of_kinds
from ebpfprof.settings.setting import Setting, settings_of
from ebpfprof.settings.values import (
    ListValue,
    NumberValue,
    SizeValue,
    SwitchValue,
    TimeValue,
    Value,
    WordValue,
)

FILE: Final = Path("packaging/helm/ebpfprof/values.schema.json")
Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_SWITCH: Final[Schema] = {"type": "boolean"}
_ANY_OBJECT: Final[Schema] = {"type": "object"}
_TEXTS: Final[Schema] = {"type": "object", "additionalProperties": _TEXT}
_OBJECTS: Final[Schema] = {"type": "array", "items": _ANY_OBJECT}


def text() -> str:
    """The file."""
    return json.dumps(schema(), indent=2) + "\n"


def schema() -> Schema:
    """The schema, JSON Schema's draft 7, which Helm reads."""
    agent = _closed(
        {
            "settings": _table(settings_of(Settings)),
            "ring": _table(settings_of(RingSettings)),
            "kubernetes": _table(settings_of(KubernetesSettings)),
            "options": _options(),
            "sinks": {"type": "array", "items": _table(settings_of(SinkSettings))},
            "rules": {"type": "array", "items": _table(settings_of(Rule))},
        }
    )
    monitor: Schema = {"enabled": _SWITCH, "labels": _TEXTS}
    values = {
        "global": _ANY_OBJECT,  # which Helm adds for charts within charts
        "image": _closed(
            {
                "repository": {"type": "string", "minLength": 1},
                "tag": _TEXT,
                "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
            }
        ),
        "imagePullSecrets": _OBJECTS,
        "nameOverride": _TEXT,
        "fullnameOverride": _TEXT,
        "agent": agent,
        "ringHostPath": {"type": "string", "pattern": "^(/.+)?$"},
        "security": _closed(
            {
                "sysAdmin": _SWITCH,
                "seccompProfile": {"enum": ["RuntimeDefault", "Unconfined"]},
                "seLinuxType": _TEXT,
            }
        ),
        "resources": _ANY_OBJECT,
        "metrics": _closed(
            {
                "port": {"type": "integer", "minimum": 1, "maximum": 65535},
                "podMonitor": _closed({**monitor, "interval": _TEXT}),
                "alerts": _closed(monitor),
                "dashboard": _closed(monitor),
            }
        ),
        "rbac": _closed({"create": _SWITCH}),
        "serviceAccount": _closed({"create": _SWITCH, "name": _TEXT, "annotations": _TEXTS}),
        "updateStrategy": _ANY_OBJECT,
        "priorityClassName": _TEXT,
        "nodeSelector": _TEXTS,
        "affinity": _ANY_OBJECT,
        "tolerations": _OBJECTS,
        "podAnnotations": _TEXTS,
        "podLabels": _TEXTS,
        "extraEnv": _OBJECTS,
        "extraVolumes": _OBJECTS,
        "extraVolumeMounts": _OBJECTS,
    }
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_closed(values)}


def _closed(properties: Schema) -> Schema:
    """An object with these keys and no others: a typing error is an error."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _table(settings: Iterable[Setting]) -> Schema:
    return _closed(
        {one.name: {**_of(one.value), "description": one.help} for one in settings if one.in_chart}
    )


def _options() -> Schema:
    options = [option for option, _ in options_of_kinds().values()]
    return _table(option for option in options if not option.excludes)


def _of(value: Value) -> Schema:
    """What a type of values is in JSON. Times and sizes may be texts: the agent reads these."""
    match value:
        case SwitchValue():
            return _SWITCH
        case NumberValue():
            kind = "number" if value.is_fraction else "integer"
            return {"type": kind, "minimum": value.least, "maximum": value.most}
        case TimeValue():
            return {"type": ["string", "number"]}
        case SizeValue():
            return {"type": ["string", "integer"]}
        case WordValue():
            return {"enum": list(value.words())}
        case ListValue():
            one = _of(value.item)
            several = {"type": "array", "items": one, "minItems": int(not value.may_be_empty)}
            return {"anyOf": [one, several]} if value.may_be_text else several
        case _:
            return _TEXT
