"""What tracebacks show of arguments: the compiler's description of them, and which are live."""

from __future__ import annotations

import pytest

from symbolizer.errors import GoTableError
from symbolizer.go.arguments import Argument, Arguments, decoded
from tests.builds import versions
from tests.toolchains import MINORS
from tests.unit.symbolizer.go_programs import binary, only

END, OPEN, CLOSE, MORE, TOO_FAR = 0xFF, 0xFE, 0xFD, 0xFC, 0xFB


def shown(arguments: Arguments) -> str:
    """Values by their offset and size."""
    return "".join(
        each if isinstance(each, str) else f"{each.offset}:{each.size}{'' if each.is_live else '?'}"
        for each in arguments
    )


def text(*program: int, live: bytes = b"", has_liveness: bool = False) -> str:
    return shown(decoded(bytes(program), live, has_liveness=has_liveness))


def test_values_and_aggregates_are_separated_by_commas() -> None:
    assert text(END) == ""
    assert text(0, 8, END, 8, 8) == "0:8"
    assert text(0, 8, 8, 1, END) == "0:8, 8:1"
    assert text(OPEN, 0, 8, OPEN, 8, 4, CLOSE, OPEN, CLOSE, CLOSE, 16, 2, END) == (
        "{0:8, {8:4}, {}}, 16:2"
    )
    assert text(OPEN, 0, 8, MORE, CLOSE, TOO_FAR, MORE, END) == "{0:8, ...}, _, ..."


def test_slots_that_are_not_live_are_marked() -> None:
    program = (0, 8, 16, 8, 24, 8, 32, 4, END)
    live = bytes([16, 0b101])  # of the slots from offset 16 on, the second one is dead
    assert text(*program, live=live, has_liveness=True) == "0:8, 16:8, 24:8?, 32:4"
    assert text(*program, live=live) == "0:8, 16:8, 24:8, 32:4"
    # A table that ends too early: nothing says that they are live.
    assert text(*program, live=live[:1], has_liveness=True) == "0:8, 16:8?, 24:8?, 32:4?"
    many = [part for slot in range(10) for part in (8 * slot, 8)]
    found = text(*many, END, live=bytes([0, 0xFF, 0b01]), has_liveness=True)
    assert found.endswith("56:8, 64:8, 72:8?")


@pytest.mark.parametrize("program", [(), (0, 8), (OPEN,), (0, 8, 16), (MORE,) * 300])
def test_a_description_without_an_end_is_refused(program: tuple[int, ...]) -> None:
    with pytest.raises(GoTableError, match="does not end"):
        text(*program)


def test_a_size_that_no_value_has_is_cut() -> None:
    assert decoded(bytes([0, 200, END]), b"", has_liveness=False) == (Argument(0, 8, True),)


@pytest.mark.parametrize("minor", versions())
def test_arguments_of_functions_of_the_runtime(minor: str) -> None:
    found = binary(minor)
    park = only(found, "runtime.gopark")
    assert (
        shown(found.arguments(park.entry + 1)).replace("?", "").startswith("0:8, 8:8, 16:1, 17:1")
    )
    # As Go 1.22 and later write it: runtime.goexit({}).
    goexit = found.arguments(only(found, "runtime.goexit").entry)
    assert shown(goexit) == ("" if minor in MINORS[: MINORS.index("1.22")] else "{}")
    assert found.arguments(found.text_start - 1) == ()
    main = only(found, "main.main")
    assert found.arguments(main.entry) == ()
