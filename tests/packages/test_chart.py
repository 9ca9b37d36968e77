"""The chart's values, and the manifest that is made of it: least rights, and a file that is right.

test_fresh.py renders the chart with Helm.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from ebpfprof import __version__
from ebpfprof.agent.settings_file import parsed
from ebpfprof.privileges.checks import RECORDING
from tests.tools.rooms import ROOT

CHART: Final = ROOT / "packaging" / "helm" / "ebpfprof"
MANIFEST: Final = ROOT / "packaging" / "kubernetes" / "ebpfprof.yaml"
VALUES: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text())


def refused(values: dict[str, Any]) -> str:
    """What the schema says against these values."""
    errors = jsonschema.Draft7Validator(SCHEMA).iter_errors(values)
    return "; ".join(error.message for error in errors)


def manifest(kind: str, file: Path = MANIFEST) -> dict[str, Any]:
    """The object of this kind in a manifest."""
    documents = filter(None, yaml.safe_load_all(file.read_text()))
    (found,) = (document for document in documents if document["kind"] == kind)
    return dict(found)


def test_the_default_values_fit_their_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert refused(VALUES) == ""
    assert set(SCHEMA["properties"]) == {*VALUES, "global"}


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        ({"settings": {"windows": "1m"}}, "'windows' was unexpected"),
        ({"settings": {"max_node_overhead": 200}}, "200 is greater than the maximum of 100"),
        ({"settings": {"listen": "0.0.0.0:1"}}, "'listen' was unexpected"),
        ({"ring": {"max_byte": 1}}, "'max_byte' was unexpected"),
        ({"kubernetes": {"cri": "/x"}}, "'cri' was unexpected"),
        ({"kubernetes": {"api_server": True}}, "True is not of type 'string'"),
        ({"rules": [{"action": "dorp"}]}, "'dorp' is not one of ['replace'"),
        ({"options": {"hz": "many"}}, "'many' is not of type 'integer'"),
        ({"sinks": [{"kind": "x"}]}, "'kind' was unexpected"),
    ],
)
def test_wrong_settings_are_refused(agent: dict[str, Any], why: str) -> None:
    assert why in refused({**VALUES, "agent": {**VALUES["agent"], **agent}})


def test_settings_as_the_docs_have_them_are_taken() -> None:
    agent = {
        "settings": {"window": "1m", "max_node_overhead": 2.5, "environment": ["DEPLOYMENT"]},
        "ring": {"max_bytes": "8GiB"},
        "rules": [{"action": "drop", "source": ["service"], "regex": "go|gopls"}],
    }
    assert refused({**VALUES, "agent": {**VALUES["agent"], **agent}}) == ""


def test_values_that_are_not_the_default_are_taken() -> None:
    values = yaml.safe_load((CHART / "ci" / "all-values.yaml").read_text())
    assert values["agent"]["rules"]
    assert refused(values) == ""


def test_the_manifest_has_the_least_rights() -> None:
    pod = manifest("DaemonSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    rights = container["securityContext"]
    assert rights["capabilities"]["drop"] == ["ALL"]
    assert {f"CAP_{name}" for name in rights["capabilities"]["add"]} == RECORDING
    assert rights["privileged"] is False
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False
    assert "hostNetwork" not in pod
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    mounted = [each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each]
    assert mounted == ["/var/lib/ebpfprof"]
    assert container["resources"]["limits"]["memory"]


def test_the_agent_may_list_pods_and_nothing_else_and_only_if_asked_for() -> None:
    assert VALUES["agent"]["kubernetes"] == {}
    assert "ClusterRole" not in MANIFEST.read_text()
    file = MANIFEST.parent / "api-server.yaml"
    role, binding = manifest("ClusterRole", file), manifest("ClusterRoleBinding", file)
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (account,) = binding["subjects"]
    ours = manifest("ServiceAccount")["metadata"]
    assert (account["kind"], account["name"], account["namespace"]) == (
        "ServiceAccount",
        ours["name"],
        ours["namespace"],
    )


def test_the_manifest_has_settings_that_the_agent_understands() -> None:
    found = parsed(manifest("ConfigMap")["data"]["agent.toml"], "agent.toml")
    assert found.listen
    assert (found.listen.host, found.listen.port) == ("0.0.0.0", 6061)
    assert found.host_root == "/proc/1/root"


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__
    assert f"VERSION={__version__}" in (ROOT / "packaging/docker/Dockerfile").read_text()
