"""What registers hold, by what they held earlier: code of a few bytes, assembled by hand."""

from __future__ import annotations

from symbolizer.x86.disasm import decode, detailed_decoder, successors
from symbolizer.x86.values import Source, derived


def values(*instructions: bytes, wanted: str = "rbx") -> Source | None:
    """What a register holds behind the instructions; None if it is not known."""
    code = b"".join((*instructions, b"\x90"))
    raw = {each.address: each for each in detailed_decoder().disasm(code, 0)}
    found = derived(raw, successors(decode(code, 0)), 0, len(code) - 1, (wanted,))
    return None if found is None else found[0]


MOV_RBX_RCX = b"\x48\x89\xcb"
MOV_RBX_STACK = b"\x48\x8b\x5c\x24\x30"  # mov rbx, [rsp+0x30]
MOV_STACK_RAX = b"\x48\x89\x44\x24\x30"  # mov [rsp+0x30], rax
MOV_STACK_AL = b"\x88\x44\x24\x30"
MOV_RBX_FIELD = b"\x48\x8b\x58\x68"  # mov rbx, [rax+0x68]
MOV_EBX_16 = b"\xbb\x10\x00\x00\x00"
MOV_EBX_ECX = b"\x89\xcb"
LEA_RBX_8_RAX = b"\x48\x8d\x58\x08"
ADD_RBX_RAX = b"\x48\x01\xc3"
POP_RBX = b"\x5b"
CALL = b"\xe8\x00\x00\x00\x00"
JE_OVER_3 = b"\x74\x03"
LOOP_BACK = b"\x75\xfb"  # jne to the mov before it
NOP_2 = b"\x66\x90"


def test_moves_are_followed() -> None:
    assert values() == Source("rbx", 0)
    assert values(MOV_RBX_RCX) == Source("rcx", 0)
    assert values(MOV_RBX_STACK) == Source("rsp", 0x30, reads=True)
    assert values(MOV_RBX_FIELD) == Source("rax", 0x68, reads=True)
    assert values(MOV_EBX_16) == Source("", 16)
    assert values(LEA_RBX_8_RAX) == Source("rax", 8)
    assert values(NOP_2, MOV_RBX_RCX, NOP_2) == Source("rcx", 0)


def test_a_word_on_the_stack_is_what_was_stored_there() -> None:
    assert values(MOV_STACK_RAX, MOV_RBX_STACK) == Source("rax", 0)
    assert values(MOV_STACK_AL, MOV_RBX_STACK) is None  # a part of it is another


def test_a_word_behind_a_pointer_from_memory_is_not_known() -> None:
    mov_rax_field = b"\x48\x8b\x40\x68"
    assert values(mov_rax_field, MOV_RBX_FIELD) is None


def test_all_else_is_not_known() -> None:
    assert values(ADD_RBX_RAX) is None
    assert values(MOV_EBX_ECX) is None  # half of a register
    assert values(POP_RBX) is None
    assert values(MOV_RBX_RCX, CALL) is None


def test_all_ways_must_agree() -> None:
    assert values(JE_OVER_3, MOV_RBX_RCX) is None
    assert values(JE_OVER_3, MOV_RBX_RCX, MOV_EBX_16) == Source("", 16)


def test_a_loop_ends_the_search() -> None:
    assert values(MOV_RBX_RCX, LOOP_BACK) is None
