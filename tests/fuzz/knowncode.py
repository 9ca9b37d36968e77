"""Decodes machine code that differs little from code decoded before, without decoding all again.

The inputs of a parser differ in a few bytes of their code, and Python's view of capstone takes ten
microseconds an instruction. Up to 15 bytes and the address determine an instruction, so we remember
it. We also remember whole functions, since most inputs change few of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final
from unittest import mock

from symbolizer.codeanalysis import cgo_callback, globals, park_sites, runtime_functions
from symbolizer.go import stack_switch
from symbolizer.x86 import disasm
from symbolizer.x86.call_sites import InstructionStarts
from symbolizer.x86.disasm import Instruction

_LONGEST_BYTES: Final = 15
_FUNCTIONS: Final = 1 << 10
_DECODER: Final = disasm.detailed_decoder()


@lru_cache(maxsize=_FUNCTIONS)
def decode(code: bytes, address: int) -> tuple[Instruction, ...]:
    """The result of symbolizer.x86.disasm.decode."""
    if len(code) > disasm._MAX_FUNCTION_BYTES:
        return disasm.decode(code, address)
    found, at = [], 0
    while instruction := _first(code[at : at + _LONGEST_BYTES], address + at):
        found.append(instruction)
        at += instruction.size
    return tuple(found)


def among(_: object, code: bytes, entry: int, addresses: list[int]) -> list[int]:
    """The result of symbolizer.x86.call_sites.InstructionStarts.among."""
    return list(_among(code, entry, tuple(addresses)))


@lru_cache(maxsize=_FUNCTIONS)
def _among(code: bytes, entry: int, addresses: tuple[int, ...]) -> list[int]:
    wanted, found, address = set(addresses), list[int](), entry
    while address <= addresses[-1]:
        at = address - entry
        instruction = _first(code[at : at + _LONGEST_BYTES], address)
        if not instruction:
            break
        if address in wanted:
            found.append(address)
        address += instruction.size
    return found


@lru_cache(maxsize=1 << 16)
def _first(code: bytes, address: int) -> Instruction | None:
    """The instruction at the beginning; None if there is none."""
    return next(map(disasm._instruction, _DECODER.disasm(code, address, 1)), None)


@contextmanager
def remembering() -> Iterator[None]:
    """Make all code that decodes functions of a program use this module."""
    with (
        mock.patch.object(cgo_callback, "decode", decode),
        mock.patch.object(globals, "decode", decode),
        mock.patch.object(park_sites, "decode", decode),
        mock.patch.object(runtime_functions, "decode", decode),
        mock.patch.object(stack_switch, "decode", decode),
        mock.patch.object(InstructionStarts, "among", among),
    ):
        yield
