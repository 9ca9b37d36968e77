"""numpy's description of runtime structs, to read many of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from symbolizer.go.runtime_layout import RuntimeLayout


def record(
    layout: RuntimeLayout, struct: str, fields: Sequence[tuple[str, str, str]]
) -> np.dtype[Any]:
    """The struct with these fields: the name that we give it, its name in Go, numpy's format.

    Fields that this version of Go does not have are left out.
    """
    present = [field for field in fields if layout.has(struct, field[1])]
    return np.dtype(
        {
            "names": [name for name, _, _ in present],
            "formats": [code for _, _, code in present],
            "offsets": [layout.offset(struct, field) for _, field, _ in present],
            "itemsize": layout.size(struct),
        }
    )
