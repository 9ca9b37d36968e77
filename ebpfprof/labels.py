"""The labels that a program gave its goroutines (runtime/pprof): rows of label_sets → Labels."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.profile import Label

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ebpfprof.loader import Program
    from symbolizer import RuntimeLayout

MAX_LABEL_SETS: Final = 1 << 12
"""The size of the map label_sets: how many different sets a recording can tell apart."""
CUT: Final = "..."
"""The end of a key or a value of which the rest is missing."""
LEFT_OUT: Final = "labels_left_out"
"""The key of the label that says how many more the goroutine had."""

_FIRST_MINOR_WITH_SLICE: Final = 24


def target_fields(layout: RuntimeLayout) -> dict[str, int]:
    """What label_set of bpf/labels.h must know of a target whose runtime is laid out so."""
    minor = int(layout.version.removeprefix("1."))
    return {
        "labels_offset": layout.offset("g", "labels"),
        "labels_in_slice": int(minor >= _FIRST_MINOR_WITH_SLICE),
    }


def label_sets(hashes: npt.NDArray[Any], rows: npt.NDArray[Any]) -> dict[int, tuple[Label, ...]]:
    """The labels of each set, ordered by key; equal ones are equal whatever their hash.

    The arguments are what Program.read_hash returns of the map label_sets. Keys and values that
    were cut end with CUT. As in Go's own profiles, pprof has no label without a key or a value.
    """
    return {int(key): _labels(row) for key, row in zip(hashes, rows, strict=True)}


def delete_sets(
    program: Program, is_gone: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]
) -> None:
    """Delete the sets of those owners (label_owner of bpf/labels.h) to which nothing refers."""
    keys, sets = program.read_hash("label_sets")
    program.delete_rows("label_sets", keys[is_gone(sets["owner"])])


def chosen(labels: Iterable[Label], keys: tuple[str, ...] | None) -> tuple[Label, ...]:
    """Those of the labels that have one of the keys; all of them for None."""
    return tuple(label for label in labels if keys is None or label.key in keys)


def _labels(row: Any) -> tuple[Label, ...]:  # noqa: ANN401 - a record of numpy
    found = [
        (
            text(label["key"].tobytes(), label["key_bytes"]),
            text(label["value"].tobytes(), label["value_bytes"]),
        )
        for label in row["labels"][: row["stored"]]
    ]
    return labels_of(found, int(row["count"]))


def labels_of(found: Iterable[tuple[str, str]], count: int) -> tuple[Label, ...]:
    """The labels of a set of `count`, of which these keys and values were found, by key."""
    ordered = sorted(found)
    labels = [Label(key, value) for key, value in ordered if key and value]
    if count > len(ordered):
        labels.append(Label(LEFT_OUT, str(count - len(ordered))))
    return tuple(labels)


def text(data: bytes, length: int) -> str:
    """A string of Go of `length` bytes, which may be any, as much of it as was kept."""
    if length <= len(data):
        return data[:length].decode(errors="backslashreplace")
    # A character that was cut in two is left out.
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return decoder.decode(data) + CUT
