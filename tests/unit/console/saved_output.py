"""What tests write, and where it is saved if its place does not take it."""

import os
import re
from pathlib import Path

import pytest

from ebpfprof.errors import OutputError

DATA = os.urandom(200_000)


def rescued(error: pytest.ExceptionInfo[OutputError]) -> Path:
    """The file that the message says it was saved as."""
    found = re.search(r"saved as (\S+) instead\.$", str(error.value))
    assert found, str(error.value)
    return Path(found[1])
