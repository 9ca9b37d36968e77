"""What a recording's kernel maps held, in a file; and a BpfProgram that reads them from there.

A recording NAME is two files in data/: NAME.npz has the rows of the hash maps and the records of
the ring buffer, NAME.json all else. Maps are kept as they were at moments, which have names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ebpfprof.kernel import c_facts
from ebpfprof.kernel.losses import loss_kinds
from tests.recorded.program import DATA

Rows = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""The keys and values of a hash map."""

END: Final = "end"
# Maps that recordings may lack, since they were made before these were there: path and struct.
_LATER: Final = {"lengths": ("waits/lengths.h", "lengths")}


class Maps:
    """What the maps of one program held, by moment."""

    def __init__(self, hit_ns: float | None) -> None:
        """`hit_ns` is what it costs to pass a probe, as BpfProgram knows it."""
        self.hit_ns = hit_ns
        self.hashes: dict[str, dict[str, Rows]] = {}  # by moment and map
        self.arrays: dict[str, list[int]] = {}  # those at the end, by map
        self.per_cpu: dict[str, dict[str, int]] = {}  # their first elements, at the end
        self.records: list[bytes] = []


class Saved:
    """One recording: its maps by program ("waits", "cpu"), and `facts`, which fit into JSON."""

    def __init__(self, maps: Mapping[str, Maps], facts: dict[str, Any]) -> None:
        self.maps = maps
        self.facts = facts

    def save(self, name: str, folder: Path = DATA) -> None:
        """Write the two files."""
        arrays: dict[str, npt.NDArray[Any]] = {}
        described: dict[str, Any] = {}
        for program, maps in self.maps.items():
            for moment, hashes in maps.hashes.items():
                for name_of_map, (keys, values) in hashes.items():
                    arrays[f"{program}/{moment}/{name_of_map}/keys"] = keys
                    arrays[f"{program}/{moment}/{name_of_map}/values"] = values
            lengths = [len(record) for record in maps.records]
            arrays[f"{program}/records"] = np.frombuffer(b"".join(maps.records), np.uint8)
            described[program] = {
                "hit_ns": maps.hit_ns,
                "arrays": maps.arrays,
                "per_cpu": maps.per_cpu,
                "records": lengths,
            }
        np.savez_compressed(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]  # names as keywords
        document = {"programs": described, **self.facts}
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
        (folder / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")

    @classmethod
    def load(cls, name: str, folder: Path = DATA) -> Saved:
        """Read what save() wrote."""
        facts = json.loads((folder / f"{name}.json").read_text())
        found = {}
        with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
            for program, described in facts.pop("programs").items():
                maps = found[program] = Maps(described["hit_ns"])
                maps.arrays, maps.per_cpu = described["arrays"], described["per_cpu"]
                data, at = arrays[f"{program}/records"].tobytes(), 0
                for length in described["records"]:
                    maps.records.append(data[at : at + length])
                    at += length
                for key in arrays:
                    of, *rest = key.split("/")
                    if of == program and len(rest) == 3 and rest[2] == "keys":
                        moment, name_of_map, _ = rest
                        values = arrays[f"{of}/{moment}/{name_of_map}/values"]
                        kept = maps.hashes.setdefault(moment, {})
                        kept[name_of_map] = arrays[key], values
        return cls(found, facts)


class Records:
    """Reads the records of a ring buffer, as RingReader does."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self._left = list(records)

    def consume(self, max_records: int = 4096) -> list[bytes]:
        taken, self._left = self._left[:max_records], self._left[max_records:]
        return taken

    def close(self) -> None:
        self._left.clear()


class SavedProgram:
    """Stands for BpfProgram (the BPF program with its maps); show() sets what the maps hold.

    Nothing is compiled or attached. Rows can be added and deleted; what else is written to maps is
    for the kernel only.
    """

    def __init__(self, maps: Maps) -> None:
        self.maps = SavedMaps(maps)
        self.hit_ns = maps.hit_ns
        self.failure: Exception | None = None
        self.is_loaded = False

    def show(self, moment: str) -> None:
        """Let maps hold what they did at a moment; those that were not saved then stay."""
        self.maps.shown |= self.maps.saved.hashes[moment]

    def load(self, *_: object, **__: object) -> None:
        """Once it is loaded, its costs are those that were saved."""
        self.is_loaded = True

    def attach_uprobes(self, *_: object, **__: object) -> None: ...

    def detach(self) -> None: ...

    def detach_uprobes(self, *_: object, **__: object) -> None: ...

    def run(self, *_: object) -> None: ...

    def close(self) -> None: ...


class SavedMaps(dict[str, "SavedMap"]):
    """The maps of a SavedProgram; each name is that of a map."""

    def __init__(self, maps: Maps) -> None:
        super().__init__()
        self.saved = maps
        self.shown: dict[str, Rows] = {}

    def __missing__(self, name: str) -> SavedMap:
        return SavedMap(self, name)


class SavedMap:
    """Stands for BpfMap."""

    def __init__(self, maps: SavedMaps, name: str) -> None:
        self._maps, self._name = maps, name

    @property
    def types(self) -> tuple[np.dtype[Any], np.dtype[Any]]:
        keys, values = self.rows()
        return keys.dtype, values.dtype

    def set_struct(self, *_: object) -> None: ...

    def numbers(self) -> list[int]:
        found = self._maps.saved.arrays[self._name]
        # What can be lost was less when it was recorded; later kinds of losses came at the end.
        return found + [0] * (len(loss_kinds()) - len(found)) if self._name == "losses" else found

    def sum_at(self, index: int) -> dict[str, int]:
        assert index == 0, "one target was recorded, and has the number 0"
        return dict(self._maps.saved.per_cpu[self._name])

    def batches(self) -> Iterator[Rows]:
        yield self.rows()

    def rows(self) -> Rows:
        if self._name not in self._maps.shown and self._name in _LATER:
            return np.zeros(0, np.uint64), np.zeros(0, c_facts.struct(*_LATER[self._name]))
        return self._maps.shown[self._name]

    def update(self, keys: npt.NDArray[Any], values: npt.NDArray[Any]) -> int:
        self.delete(keys)
        kept_keys, kept_values = self.rows()
        rows = np.concatenate([kept_keys, keys]), np.concatenate([kept_values, values])
        self._maps.shown[self._name] = rows
        return len(keys)

    def delete(self, keys: npt.NDArray[Any]) -> None:
        kept_keys, kept_values = self.rows()
        stays = ~np.isin(kept_keys, keys)
        self._maps.shown[self._name] = kept_keys[stays], kept_values[stays]

    def reader(self) -> Records:
        assert self._name == "unlearned"
        return Records(self._maps.saved.records)
