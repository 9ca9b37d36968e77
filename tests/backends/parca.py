"""A running Parca, and what it says that it has."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.backends.building import PARCA, built
from tests.backends.ports import free_port
from tests.backends.running import RunningServer
from tests.targets_run import DEADLINE_S

CONFIG = """\
object_storage:
  bucket:
    type: FILESYSTEM
    config:
      directory: {folder}
"""


class Parca(RunningServer):
    """A context manager: the process, and all that it has in memory, ends with the block."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        """It listens on a free port unless one is given."""
        config = folder / "parca.yaml"
        config.write_text(CONFIG.format(folder=folder / "parca-data"))
        self.port = port or free_port()
        address = f"--http-address=127.0.0.1:{self.port}"
        command: list[str | Path] = [
            built(PARCA),
            address,
            f"--config-path={config}",
            "--log-level=error",
        ]
        super().__init__(command, self.port, folder / "parca.log")

    def types(self) -> set[str]:
        """The types of profiles that it has, as its page shows them."""
        found = self._ask("types")["types"]
        return {
            ":".join(each[part] for part in ("name", "sampleType", "sampleUnit"))
            + f":{each['periodType']}:{each['periodUnit']}"
            + (":delta" if each.get("delta") else "")
            for each in found
        }

    def label_values(self, name: str) -> list[str]:
        return list(self._ask(f"labels/{name}/values")["labelValues"])

    def profile(self, query: str, start_s: float, end_s: float) -> Profile:
        """The sum of what a query finds in a time."""
        found = self._ask(
            "query",
            mode="MODE_MERGE",
            reportType="REPORT_TYPE_PPROF",
            **{
                "merge.query": query,
                "merge.start": _rfc3339(start_s),
                "merge.end": _rfc3339(end_s),
            },
        )
        return pprof.decode(b64decode(found["pprof"]))

    def _ask(self, path: str, **values: str) -> dict[str, Any]:
        url = f"{self.url}/api/profiles/{path}?{urllib.parse.urlencode(values)}"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
