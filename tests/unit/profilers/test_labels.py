"""Rows of the kernel's map of label sets, made here, decoded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ebpfprof.export import pprof
from ebpfprof.goruntime.goroutines.labels import CUT, LEFT_OUT, target_fields
from ebpfprof.kernel import c_facts
from ebpfprof.kernel.losses import loss_kinds
from ebpfprof.profile.model import Label
from ebpfprof.profilers.labels import chosen, label_sets
from symbolizer.go.runtime_layout import layout_for
from symbolizer.go.version import GoVersion
from tests.unit.export.small_profile import SMALL

KEPT, KEY_ROOM, VALUE_ROOM = (
    c_facts.number("common/labels.h", name)
    for name in ("MAX_LABELS", "LABEL_KEY_ROOM", "LABEL_VALUE_ROOM")
)
LABEL_SET = c_facts.struct("common/labels.h", "label_set")


def row(*labels: tuple[bytes, bytes], rest: bytes = b"\0") -> np.ndarray[Any, Any]:
    """What the kernel stores of a goroutine that has these labels; `rest` is in all other bytes."""
    made = np.frombuffer(rest * LABEL_SET.itemsize, LABEL_SET).copy()
    made["count"], made["stored"] = len(labels), min(len(labels), KEPT)
    for slot, (key, value) in zip(made[0]["labels"], labels, strict=False):
        slot["key_bytes"], slot["value_bytes"] = len(key), len(value)
        for field, text, room in (("key", key, KEY_ROOM), ("value", value, VALUE_ROOM)):
            kept = text[:room].ljust(room, b"\0")
            slot[field] = np.frombuffer(kept, "<u8")
    return made


def decoded(*labels: tuple[bytes, bytes], rest: bytes = b"\0") -> dict[str, str]:
    """The same labels as they are shown."""
    (found,) = label_sets(np.array([7], "<u8"), row(*labels, rest=rest)).values()
    assert len({label.key for label in found}) == len(found)
    return {label.key: str(label.value) for label in found}


def test_labels_are_sorted_by_key() -> None:
    rows = np.concatenate([row((b"b", b"2"), (b"a", b"1")), row((b"a", b"1"), (b"b", b"2"))])
    found = label_sets(np.array([1 << 63, 2], "<u8"), rows)
    assert found == {1 << 63: (Label("a", "1"), Label("b", "2")), 2: found[1 << 63]}


def test_bytes_of_an_earlier_set_are_not_shown() -> None:
    assert decoded((b"a", b"1"), rest=b"x") == {"a": "1"}


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        (b"k" * 64, b"v" * 128, ("k" * 64, "v" * 128)),
        (b"k" * 65, b"v" * 129, ("k" * 64 + CUT, "v" * 128 + CUT)),
        (b"k", "é".encode() * 65, ("k", "é" * 64 + CUT)),
        (b"k", b"v" * 125 + "🙂🙂".encode(), ("k", "v" * 125 + CUT)),
        (b"k", b"\xff\x00.", ("k", "\\xff\0.")),
        (b"k", b"v" * 127 + "é".encode()[:1], ("k", "v" * 127 + "\\xc3")),
        (b"k", b"\xff" + b"v" * 128, ("k", "\\xff" + "v" * 127 + CUT)),
    ],
)
def test_labels_of_any_bytes_and_lengths_are_decoded(
    key: bytes, value: bytes, shown: tuple[str, str]
) -> None:
    assert decoded((key, value)) == dict([shown])


def test_labels_without_room_are_counted() -> None:
    labels = [(f"k{n}".encode(), b"v") for n in range(KEPT + 3)]
    assert decoded(*labels[:KEPT]) == {f"k{n}": "v" for n in range(KEPT)}
    assert decoded(*labels) == {f"k{n}": "v" for n in range(KEPT)} | {LEFT_OUT: "3"}


def test_pprof_has_no_empty_labels() -> None:
    assert decoded((b"a", b""), (b"", b"1"), (b"b", b"2")) == {"b": "2"}


def test_keys_that_are_cut_to_equal_text_are_both_shown() -> None:
    rows = row((b"k" * 71, b"2"), (b"k" * 70, b"1"))
    key = "k" * 64 + CUT
    assert label_sets(np.array([7], "<u8"), rows) == {7: (Label(key, "1"), Label(key, "2"))}


def test_samples_that_differ_only_in_labels_have_a_fixed_order() -> None:
    samples = [replace(SMALL.samples[0], labels=(Label("a", value),)) for value in "213"]
    given, sorted_first = (
        pprof.encode(replace(SMALL, samples=tuple(each)))
        for each in (samples, sorted(samples, key=lambda sample: str(sample.labels)))
    )
    assert given == sorted_first


def test_only_the_chosen_labels_are_decoded() -> None:
    labels = (Label("a", "1"), Label("b", "2"))
    assert chosen(labels, None) == labels
    assert chosen(labels, ("b", "c")) == labels[1:]
    assert chosen(labels, ()) == ()


@pytest.mark.parametrize(
    ("version", "offset", "in_slice"),
    [("go1.19.8", 360, 0), ("go1.23.1", 352, 0), ("go1.24", 352, 1), ("go1.27.3", 352, 1)],
)
def test_the_label_offset_depends_on_the_go_version(
    version: str, offset: int, in_slice: int
) -> None:
    found = target_fields(layout_for(GoVersion.parse(version)))
    assert found == {"labels_offset": offset, "labels_in_slice": in_slice}


def test_descriptions_of_losses_have_the_limits_of_the_code() -> None:
    words = dict(loss_kinds())
    assert f"more than {KEPT}" in words["labels_many"]
    assert f"over {KEY_ROOM} bytes" in words["label_cut"]
    assert f"over {VALUE_ROOM}" in words["label_cut"]
