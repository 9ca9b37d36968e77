"""What a package is made of, as a CycloneDX 1.6 bill of materials on standard output.

    python -m tests.tools.sbom [--of wheel|deb|image]

Names, versions and SHA-256 are those of tests/requirements/run.txt, licences and who needs whom
those of the installed packages, and the libraries of the page those of vendored.json. A wheel
contains no other package: it asks for them, in versions that the installer chooses. The time in it
is that of SOURCE_DATE_EPOCH, so that the same sources give the same file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
import tomllib
import uuid
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from ebpfprof import __version__

ROOT: Final = Path(__file__).parents[2]
PINS: Final = ROOT / "tests" / "requirements" / "run.txt"
VENDORED: Final = ROOT / "ebpfprof" / "web" / "vendor" / "vendored.json"
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# In the manner of Debian's tools, without a version: apt chooses it.
BCC: Final = "pkg:deb/debian/python3-bpfcc"
H2: Final = "pkg:deb/debian/python3-h2"
OURS: Final = f"pkg:pypi/ebpfprof@{__version__}"
_PIN: Final = re.compile(r"(\S+)==(\S+) --hash=sha256:([0-9a-f]{64})")
_SCHEMA: Final = "http://cyclonedx.org/schema/bom-1.6.schema.json"

Component = dict[str, Any]


def pins() -> dict[str, tuple[str, str]]:
    """Versions and SHA-256 of what ebpfprof needs, by name."""
    return {name: (version, digest) for name, version, digest in _PIN.findall(PINS.read_text())}


def document(kind: str) -> Component:
    """The bill of materials of a wheel, deb or image."""
    found = pins()
    libraries = [_of_the_page(load) for load in json.loads(VENDORED.read_text())]
    packages = [_of_pypi(name, *each, kind) for name, each in found.items()]
    edges = {OURS: [*_needs(PROJECT["dependencies"], found), BCC, H2]}
    edges[OURS] += [library["bom-ref"] for library in libraries]
    for name in found:
        edges[_purl(name, found)] = _needs(metadata.requires(name) or [], found)
    bom: Component = {
        "$schema": _SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_time_s())),
            "component": {
                "type": "application",
                "bom-ref": OURS,
                "name": "ebpfprof",
                "version": __version__,
                "description": PROJECT["description"],
                "licenses": [{"expression": PROJECT["license"]}],
                "purl": OURS,
            },
            "properties": [{"name": "ebpfprof:package", "value": kind}],
        },
        "components": [*packages, *libraries, *_of_debian(kind)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(on)} for ref, on in edges.items()],
    }
    digest = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bom))
    return {**bom, "serialNumber": digest.urn}


def _time_s() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))


def _purl(name: str, found: dict[str, tuple[str, str]]) -> str:
    return f"pkg:pypi/{name}@{found[name][0]}"


def _of_pypi(name: str, version: str, digest: str, kind: str) -> Component:
    purl = f"pkg:pypi/{name}@{version}"
    if metadata.version(name) != version:
        raise RuntimeError(
            f"{name} {metadata.version(name)} is installed, not the {version} of {PINS}."
        )
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "scope": "required",
        "licenses": _licences(name),
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "properties": [{"name": "ebpfprof:contained", "value": str(kind != "wheel").lower()}],
    }


def _of_the_page(library: Component) -> Component:
    path, _, _ = library["source"].removeprefix("https://registry.npmjs.org/").partition("/-/")
    purl = f"pkg:npm/{path.replace('@', '%40')}@{library['version']}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": library["name"],
        "version": library["version"],
        "scope": "required",
        "licenses": [{"license": {"id": library["license"]}}],
        "purl": purl,
        "properties": [{"name": "ebpfprof:contained", "value": "true"}],
    }


def _of_debian(kind: str) -> list[Component]:
    """What comes from the distribution: h2 only if one wants it, but the image has it."""
    bcc = "BCC, of the distribution, only for BPF programs that are not compiled in the package."
    h2 = "For the agent's setting cri_socket."
    return [
        {
            "type": "library",
            "bom-ref": purl,
            "name": purl.rpartition("/")[2],
            "scope": scope,
            "description": text,
            "licenses": [{"license": {"id": licence}}],
            "purl": purl,
        }
        for purl, licence, text, scope in (
            (BCC, "Apache-2.0", bcc, "optional"),
            (H2, "MIT", h2, "required" if kind == "image" else "optional"),
        )
    ]


def _licences(name: str) -> list[Component]:
    """What the package itself says, as an SPDX expression where it is one."""
    read: Any = metadata.metadata(name)  # an email.message.Message
    if expression := read.get("License-Expression"):
        return [{"expression": expression}]
    reported = [each for each in read.get_all("Classifier", []) if each.startswith("License ::")]
    names = [each.rsplit(" :: ", 1)[1] for each in reported] or [read.get("License", "unknown")]
    return [{"license": {"name": each.splitlines()[0]}} for each in names]


def _needs(
    requirements: Iterable[str], found: dict[str, tuple[str, str]], extra: str = ""
) -> list[str]:
    """Package URLs of what these requirements ask for on this machine, also by an extra."""
    urls = set[str]()
    for each in map(Requirement, requirements):
        if each.marker and not each.marker.evaluate({"extra": extra}):
            continue
        name = re.sub(r"[-_.]+", "-", each.name).lower()
        urls.add(_purl(name, found))
        for wanted in each.extras:
            urls |= set(_needs(_of_extra(name), found, wanted))
    return sorted(urls)


def _of_extra(name: str) -> list[str]:
    """The requirements of a package that only an extra has."""
    return [require for require in metadata.requires(name) or [] if "extra ==" in require]


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.sbom")
    parser.add_argument("--of", choices=("wheel", "deb", "image"), default="wheel")
    print(json.dumps(document(parser.parse_args().of), indent=2))


if __name__ == "__main__":
    main()
