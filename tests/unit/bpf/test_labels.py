"""Labels as bpf/common/labels.h reads them and as Python does, of goroutines made up here."""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.goruntime.goroutines.labels import LEFT_OUT, LabelReader
from ebpfprof.kernel import c_facts
from ebpfprof.kernel.losses import loss_kinds
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.model import Label
from ebpfprof.profilers.labels import chosen, key_hashes, label_sets
from symbolizer.go.runtime_layout import layout_for
from symbolizer.go.version import GoVersion
from tests.unit.bpf.native import Native, Piece, PiecesMemory, build

pytestmark = pytest.mark.machine

PROGRAM = """
#include "common/labels.h"
/* 0: none, 1: some, 2: lost. */
u64 read(u64 labels, u64 is_slice, struct label_set *set) {
    u64 lost_before = losses_rows[LOSS_labels_unreadable];
    u64 key = label_set(labels, is_slice, label_owner(0, 0));
    if (key)
        *set = *label_sets.lookup(&key);
    return key ? 1 : losses_rows[LOSS_labels_unreadable] > lost_before ? 2 : 0;
}
u64 owner(u64 target_index, u64 turn) {
    return label_owner(target_index, turn);
}
void choose(u64 hash) {
    chosen_labels.insert(&hash, &hash);
}
"""
MACROS = {"MAX_TARGETS": 1, "MAX_LABEL_SETS": 4, "MAX_CHOSEN_LABELS": 8}
LABEL_SET = c_facts.struct("common/labels.h", "label_set")
KEPT, SLOTS, BUCKET_BYTES = (
    c_facts.number("common/labels.h", name)
    for name in ("MAX_LABELS", "BUCKET_SLOTS", "BUCKET_BYTES")
)
LABELS, MAP, BUCKETS, TEXTS, ABSENT = (0xC000_0000_00 + 0x10_0000 * n for n in range(1, 6))
LAYOUTS = {in_slice: layout_for(GoVersion.parse(f"go1.{23 + in_slice}")) for in_slice in (0, 1)}

Text = tuple[bytes, bool]
"""A string, and whether it is in memory."""


@dataclass(frozen=True)
class Made:
    """The memory of a goroutine with labels; runtime.g.labels is LABELS."""

    in_slice: bool
    pieces: list[Piece]
    is_all_there: bool


class Texts:
    """Strings one behind another, apart from those that are not in memory."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")

    def put(self, text: Text) -> bytes:
        """The header of a string."""
        data, is_there = text
        if not is_there:
            return struct.pack("<QQ", ABSENT, len(data))
        self.data += data
        return struct.pack("<QQ", TEXTS + len(self.data) - len(data), len(data))


def text(data: st.SearchStrategy[bytes], *, may_be_absent: bool) -> st.SearchStrategy[Text]:
    absent = st.integers(0, 12).map(bool) if may_be_absent else st.just(True)
    return st.tuples(data, absent)


any_bytes = st.one_of(
    st.text(max_size=40).map(str.encode),
    st.binary(max_size=20),
    st.builds(
        lambda letter, length: (letter * length).encode()[:length],
        st.sampled_from(["k", "é", "🙂"]),
        st.integers(60, 140),  # about as long as there is room
    ),
)
key_text = st.text(st.characters(exclude_characters="\\", codec="utf-8"), max_size=16)


@st.composite
def goroutines(draw: st.DrawFn, *, most: int = 26, may_be_absent: bool = True) -> Made:
    in_slice, texts = draw(st.booleans()), Texts()
    pairs = draw(
        st.lists(
            st.tuples(*[text(any_bytes, may_be_absent=may_be_absent)] * 2),
            max_size=most,
            unique_by=lambda pair: pair[0][0],
        )
    )
    is_all_there = all(is_there for pair in pairs for data, is_there in pair if data)
    strings = [(texts.put(key), texts.put(value)) for key, value in pairs]
    if in_slice:
        head = [(LABELS, struct.pack("<QQ", BUCKETS, len(pairs)))]
        body = b"".join(key + value for key, value in strings)
    else:
        log2_buckets = draw(st.integers(0, 2))
        body = _buckets(draw, strings, 1 << log2_buckets)
        address = MAP if pairs else draw(st.sampled_from([MAP, 0]))
        head = [
            (LABELS, struct.pack("<Q", address)),
            (MAP, struct.pack("<QBBHIQ", len(pairs), 0, log2_buckets, 0, 7, BUCKETS)),
        ]
    return Made(in_slice, [*head, (BUCKETS, body), (TEXTS, bytes(texts.data))], is_all_there)


def _buckets(draw: st.DrawFn, strings: list[tuple[bytes, bytes]], count: int) -> bytes:
    """The buckets of a map; behind them those that they flow over into."""
    buckets: list[list[tuple[bytes, bytes] | None]] = [[] for _ in range(count)]
    following: dict[int, int] = {}
    for pair in strings:
        number = draw(st.integers(0, count - 1))
        while number in following:
            number = following[number]
        buckets[number] += [None] * draw(st.integers(0, 1))
        if len(buckets[number]) >= SLOTS:
            following[number] = number = len(buckets)
            buckets.append([])
        buckets[number].append(pair)
    data = b""
    for number, bucket in enumerate(buckets):
        slots = [*bucket, *[None] * SLOTS][:SLOTS]
        data += bytes(5 + index if slot else index % 5 for index, slot in enumerate(slots))
        for part in range(2):
            data += b"".join(slot[part] if slot else b"\xff" * 16 for slot in slots)
        overflow = BUCKETS + BUCKET_BYTES * following[number] if number in following else 0
        data += struct.pack("<Q", overflow)
    return data


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    folder = tmp_path_factory.mktemp("labels")
    return Native(build(folder, PROGRAM, {**MACROS, "WITH_CHOSEN_LABELS": 0}))


@pytest.fixture(scope="module")
def choosing(tmp_path_factory: pytest.TempPathFactory) -> Native:
    folder = tmp_path_factory.mktemp("chosen")
    return Native(build(folder, PROGRAM, {**MACROS, "WITH_CHOSEN_LABELS": 1}))


def read_in_c(native: Native, made: Made) -> tuple[Label, ...] | None:
    """The labels; None if they were lost."""
    native.set_memory(made.pieces)
    row: Any = np.zeros(1, LABEL_SET)
    found = native.call("read", LABELS, int(made.in_slice), row)
    if found == 2:
        return None
    return label_sets(np.zeros(1, np.uint64), row)[0] if found else ()


def read_in_python(made: Made) -> tuple[Label, ...] | None:
    try:
        return LabelReader(PiecesMemory(made.pieces), LAYOUTS[made.in_slice]).read(LABELS)
    except UnreadableMemory:
        return None


def content_of(made: Made) -> frozenset[tuple[bytes, bytes]]:
    """All labels of a goroutine, without their order; none if some can't be read."""
    try:
        memory = PiecesMemory(made.pieces)
        return frozenset(LabelReader(memory, LAYOUTS[made.in_slice]).pairs(LABELS))
    except UnreadableMemory:
        return frozenset()


@given(one_by_one=st.lists(goroutines(), min_size=1, max_size=3))
def test_c_and_python_read_the_same_labels(one_by_one: list[Made], native: Native) -> None:
    native.call("forget_maps")
    earlier = defaultdict[frozenset[tuple[bytes, bytes]], list[tuple[Label, ...] | None]](list)
    for made in one_by_one:
        found, expected = read_in_c(native, made), read_in_python(made)
        if made.is_all_there:
            assert found is not None
        # The kernel reads those, too, of which it keeps the hash alone.
        if found is not None:
            # Of a large set it has those labels that it kept where it first met the set.
            content = content_of(made)
            allowed = [*(earlier[content] if len(content) > KEPT else ()), expected]
            assert found in allowed
            earlier[content] = allowed


@given(
    made=goroutines(most=KEPT, may_be_absent=False),
    keys=st.lists(key_text, max_size=3),
    data=st.data(),
)
def test_c_and_python_select_the_same_labels(
    made: Made, keys: list[str], data: st.DataObject, choosing: Native
) -> None:
    there = [label.key for label in read_in_python(made) or ()]
    keys += data.draw(st.lists(st.sampled_from(there), max_size=3)) if there else []
    hashes = key_hashes(tuple(keys))
    choosing.call("forget_maps")
    for found in hashes:
        choosing.call("choose", found)
    expected = chosen(read_in_python(made) or (), tuple(keys) if hashes else ())
    assert read_in_c(choosing, made) == expected


def in_a_map(pairs: list[tuple[bytes, bytes]], empty_buckets: int) -> Made:
    """The labels of a goroutine in a map: one bucket behind that many empty ones."""
    texts, data = Texts(), b""
    strings = [[texts.put((text, True)) for text in part] for part in zip(*pairs, strict=True)]
    for number in range(1, empty_buckets + 1):
        data += bytes(BUCKET_BYTES - 8) + struct.pack("<Q", BUCKETS + BUCKET_BYTES * number)
    data += (bytes([5]) * len(pairs)).ljust(SLOTS, b"\0")
    data += b"".join(b"".join(part).ljust(16 * SLOTS, b"\xff") for part in strings) + bytes(8)
    head = struct.pack("<QBBHIQ", len(pairs), 0, 0, 0, 7, BUCKETS)
    pieces = [(LABELS, struct.pack("<Q", MAP)), (MAP, head), (BUCKETS, data)]
    return Made(False, [*pieces, (TEXTS, bytes(texts.data))], is_all_there=True)


def test_a_label_without_text_that_is_out_of_reach_makes_another_set(native: Native) -> None:
    pairs = [(b"a", b"1"), (b"b", b"1"), (b"", b"")]
    near, far = (in_a_map(pairs, empty) for empty in (0, 17))  # 20 steps reach two labels
    native.call("forget_maps")
    both = (Label("a", "1"), Label("b", "1"))
    assert read_in_c(native, near) == read_in_python(near) == both
    assert read_in_c(native, far) == read_in_python(far) == (*both, Label(LEFT_OUT, "1"))


def test_a_large_set_in_another_order_has_the_labels_kept_first(native: Native) -> None:
    pairs = [(b"%02d" % number, b"1") for number in range(KEPT + 1)]
    native.call("forget_maps")
    found = []
    for ordered in (pairs, pairs[::-1]):
        texts = Texts()
        body = b"".join(texts.put((word, True)) for pair in ordered for word in pair)
        head = (LABELS, struct.pack("<QQ", BUCKETS, len(pairs)))
        pieces = [head, (BUCKETS, body), (TEXTS, bytes(texts.data))]
        found.append(read_in_c(native, Made(True, pieces, is_all_there=True)))
    kept = tuple(Label(f"{number:02}", "1") for number in range(KEPT))
    assert found == [(*kept, Label(LEFT_OUT, "1"))] * 2


@pytest.mark.parametrize("in_slice", [False, True])
def test_c_and_python_lose_labels_beyond_the_limit(in_slice: bool, native: Native) -> None:
    count = c_facts.number("common/labels.h", "MAX_LABEL_COUNT") + 1
    body = (BUCKETS, bytes(8192))
    pieces = [(LABELS, struct.pack("<QQ", BUCKETS, count)), body]
    if not in_slice:
        head = struct.pack("<QBBHIQ", count, 0, 0, 0, 7, BUCKETS)
        pieces = [(LABELS, struct.pack("<Q", MAP)), (MAP, head), body]
    made = Made(in_slice, pieces, is_all_there=True)
    assert read_in_c(native, made) is None
    assert read_in_python(made) is None


@given(target=st.integers(0, (1 << 31) - 1), turn=st.integers(0, 1))
def test_the_owner_of_a_label_set_has_target_and_turn(
    target: int, turn: int, native: Native
) -> None:
    owner = native.call("owner", target, turn)
    assert (owner >> 1, owner & 1) == (target, turn)


def test_losses_of_labels_have_names() -> None:
    assert {"labels_unreadable", "samples_full"} <= dict(loss_kinds()).keys()
