"""The labels that a program gave its goroutines (runtime/pprof): rows of label_sets → Labels."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.profile import Label

if TYPE_CHECKING:
    import numpy.typing as npt

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


def chosen(labels: Iterable[Label], keys: tuple[str, ...] | None) -> tuple[Label, ...]:
    """Those of the labels that have one of the keys; all of them for None."""
    return tuple(label for label in labels if keys is None or label.key in keys)


def _labels(row: Any) -> tuple[Label, ...]:  # noqa: ANN401 - a record of numpy
    stored, count = int(row["stored"]), int(row["count"])
    found = sorted(
        (_text(label["key"], label["key_bytes"]), _text(label["value"], label["value_bytes"]))
        for label in row["labels"][:stored]
    )
    labels = [Label(key, value) for key, value in found if key and value]
    if count > stored:
        labels.append(Label(LEFT_OUT, str(count - stored)))
    return tuple(labels)


def _text(stored: npt.NDArray[Any], length: int) -> str:
    """A string of Go, which may hold any bytes, as much of it as was stored."""
    data = stored.tobytes()
    if length <= len(data):
        return data[:length].decode(errors="backslashreplace")
    # A character that was cut in two is left out.
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return decoder.decode(data) + CUT
