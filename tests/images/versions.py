"""The versions of Go that tests on images take."""

from __future__ import annotations

from typing import Final

import pytest

from tests.builds import in_full
from tests.images.image import VERSIONS

_OF_FULL_RUN: Final = ("1.17", "1.18", "1.20")

every_version: Final = pytest.mark.parametrize(
    "version",
    [
        *in_full(*_OF_FULL_RUN),
        *(version for version in VERSIONS if version not in _OF_FULL_RUN),
    ],
)
"""All; the gate leaves out those whose runtime is most like that of another one."""
