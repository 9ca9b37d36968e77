"""The bill of materials has all that is installed, and is the same each time."""

from __future__ import annotations

import pytest

from tests.tools import sbom
from tests.unit.house.test_supply_chain import pins

EPOCH = "1700000000"


def test_it_has_each_package_with_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)
    found = sbom.document("deb")
    components = {each["bom-ref"]: each for each in found["components"]}
    expected = {f"pkg:pypi/{name}@{version}" for name, version in pins("run.txt").items()}
    assert expected <= components.keys()
    assert all(len(components[each]["hashes"][0]["content"]) == 64 for each in expected)
    assert all(component["licenses"] for component in components.values())
    assert {each for each in components if "npm" in each or "deb" in each} == {
        "pkg:npm/uplot@1.6.32",
        "pkg:npm/%40dagrejs/dagre@3.1.3",
        "pkg:deb/debian/python3-bpfcc",
        "pkg:deb/debian/python3-h2",
    }
    assert components["pkg:deb/debian/python3-h2"]["scope"] == "optional"
    assert found["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert found == sbom.document("deb")


def test_everything_in_it_is_needed_by_something() -> None:
    found = sbom.document("wheel")
    refs = {each["bom-ref"] for each in found["components"]}
    needs = {each["ref"]: set(each["dependsOn"]) for each in found["dependencies"]}
    assert set().union(*needs.values()) == refs
    assert needs["pkg:pypi/uvicorn@" + str(pins("run.txt")["uvicorn"])]
