"""How near processes are to the limits of their control groups."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ebpfprof.observing.memory_limits import MemoryLimits, NearLimit
from ebpfprof.process.control_groups import ControlGroup, ControlGroups

LIMIT_BYTES = 1_000_000


@pytest.mark.parametrize(("used_bytes", "is_near"), [(980_000, True), (100_000, False)])
def test_a_group_is_read_once_for_all_processes_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used_bytes: int, is_near: bool
) -> None:
    (tmp_path / "memory.max").write_text(f"{LIMIT_BYTES}\n")
    (tmp_path / "memory.current").write_text(f"{used_bytes}\n")
    (tmp_path / "memory.stat").write_text(f"anon {used_bytes}\nactive_file 0\ninactive_file 0\n")
    group = ControlGroup("/pods/one", str(tmp_path), is_unified=True)
    monkeypatch.setattr(ControlGroups, "of", lambda *_: (group,))
    reads, read = Counter[str](), ControlGroup.read

    def counted(self: ControlGroup, file: str) -> bytes:
        reads[file] += 1
        return read(self, file)

    limits = MemoryLimits()
    limits.near([1, 2, 3])  # finds the limits
    monkeypatch.setattr(ControlGroup, "read", counted)
    near = limits.near([1, 2, 3])
    one = NearLimit(used_bytes, LIMIT_BYTES)
    assert near == ({1: one, 2: one, 3: one} if is_near else {})
    assert reads["memory.current"] == (2 if is_near else 1)
