"""Labels that BPF programs record: which keys to select, and label_sets rows as Labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.goruntime.goroutines.labels import LEFT_OUT, labels_of, text
from ebpfprof.kernel import c_facts
from ebpfprof.profile.model import Label

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ebpfprof.kernel.program import BpfProgram

MAX_LABEL_SETS: Final = 1 << 12
"""The size of the map label_sets: how many different sets of labels a recording can hold."""
NUMBERS: Final = ("WITH_CHOSEN_LABELS",)
"""The numbers of bpf/common/labels.h that are known when a program is loaded."""
_KEY_ROOM_BYTES: Final = c_facts.number("common/labels.h", "LABEL_KEY_ROOM")
_WORD_BYTES: Final = 8
_CHUNK_BYTES: Final = c_facts.number("common/labels.h", "LABEL_CHUNK_WORDS") * _WORD_BYTES
_SEED: Final = c_facts.number("common/labels.h", "LABEL_SEED")
_HASH_FACTOR: Final = c_facts.number("common/keys.h", "HASH_FACTOR")


def key_hashes(keys: tuple[str, ...] | None) -> tuple[int, ...]:
    """Hashes of the selected keys, as take_label of bpf/common/labels.h computes them.

    () selects all keys: for None, and where hashes can't select them. A key that was cut, or is no
    UTF-8, appears in profiles in another form than in the target.
    """
    texts = [key.encode(errors="surrogateescape") for key in keys or ()]
    is_changed = [len(text) > _KEY_ROOM_BYTES or b"\\" in text for text in texts]
    if any(is_changed) or LEFT_OUT in (keys or ()):
        return ()
    return tuple(map(_key_hash, texts))


def _key_hash(text: bytes) -> int:
    words = text.ljust(-(-len(text) // _CHUNK_BYTES) * _CHUNK_BYTES, b"\0")
    key_hash = mixed(_SEED, len(text))
    for at in range(0, len(words), _WORD_BYTES):
        key_hash = mixed(key_hash, int.from_bytes(words[at : at + _WORD_BYTES], "little"))
    return key_hash


def mixed(hash_so_far: int, word: int) -> int:
    """The hash with one more word, as mix() of bpf/common/keys.h computes it."""
    product = (hash_so_far ^ word) * _HASH_FACTOR % (1 << 64)
    return product ^ product >> 32


def numbers(chosen_hashes: tuple[int, ...]) -> dict[str, int]:
    """The NUMBERS for these selected keys; see key_hashes."""
    return {"WITH_CHOSEN_LABELS": int(bool(chosen_hashes))}


def rows(chosen_hashes: tuple[int, ...]) -> dict[str, int]:
    """The rows of the maps of bpf/common/labels.h for these selected keys."""
    return {"label_sets": MAX_LABEL_SETS, "chosen_labels": max(len(chosen_hashes), 1)}


def choose(program: BpfProgram, chosen_hashes: tuple[int, ...]) -> None:
    """Give a program with these numbers the selected keys, before it records anything."""
    if chosen_hashes:
        import numpy as np

        keys, values = (
            np.array(chosen_hashes, kind) for kind in program.maps["chosen_labels"].types
        )
        program.maps["chosen_labels"].update(keys, values)


def label_sets(hashes: npt.NDArray[Any], rows: npt.NDArray[Any]) -> dict[int, tuple[Label, ...]]:
    """The labels of each set, by hash, ordered by key.

    The arguments are the result of BpfMap.rows for the map label_sets. Keys and values that were
    cut end with CUT. As in Go's own profiles, labels without a key or a value are left out.
    """
    return {int(key): _labels(row) for key, row in zip(hashes, rows, strict=True)}


def delete_sets(
    program: BpfProgram, is_gone: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]
) -> None:
    """Delete the sets of the owners (label_owner in labels.h) for which `is_gone` returns True."""
    keys, sets = program.maps["label_sets"].rows()
    program.maps["label_sets"].delete(keys[is_gone(sets["owner"])])


def chosen(labels: Iterable[Label], keys: tuple[str, ...] | None) -> tuple[Label, ...]:
    """The labels with one of the keys; all labels for None."""
    return tuple(label for label in labels if keys is None or label.key in keys)


def _labels(row: Any) -> tuple[Label, ...]:  # noqa: ANN401 - a record of numpy
    labels = [
        (
            text(label["key"].tobytes(), label["key_bytes"]),
            text(label["value"].tobytes(), label["value_bytes"]),
        )
        for label in row["labels"][: row["stored"]]
    ]
    return labels_of(labels, int(row["count"]))
