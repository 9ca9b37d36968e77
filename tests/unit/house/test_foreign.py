"""The program of others comes from its package, runs on its terminal, and is gone afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from symbolizer import ElfFile, GoBinary
from tests.foreign import AXE, SPEEDSCOPE, Fzf, axe_script, fetch, speedscope_schema
from tests.toolchains import ToolchainError


def test_fzf_is_go_stripped_and_without_pprof() -> None:
    with ElfFile.open(fetch("fzf")) as elf:
        program = GoBinary.open(elf)
        names = {function.name for function in program.functions()}
        sections = set(elf.sections)
    assert "runtime.blockevent" in names
    assert not [name for name in names if "pprof" in name]
    assert ".symtab" not in sections


def test_fzf_searches_and_ends() -> None:
    with Fzf() as fzf:
        fzf.search(rounds=2)
        fzf.await_idle()
        assert Path(f"/proc/{fzf.pid}/exe").readlink() == fzf.program
    assert not Path(f"/proc/{fzf.pid}").exists()


def test_a_failing_test_ends_fzf() -> None:
    with pytest.raises(ZeroDivisionError), Fzf() as fzf:
        raise ZeroDivisionError
    assert not Path(f"/proc/{fzf.pid}").exists()


def test_unknown_programs_are_refused() -> None:
    with pytest.raises(KeyError):
        fetch("unknown")


@pytest.mark.parametrize(("address", "read"), [(SPEEDSCOPE, speedscope_schema), (AXE, axe_script)])
def test_a_package_with_another_hash_is_refused(
    address: str, read: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = tmp_path / "ebpfprof/foreign" / Path(address).name
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"something else")
    with pytest.raises(ToolchainError, match="not the file"):
        read()
