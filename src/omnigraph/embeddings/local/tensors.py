"""Reads the tensors of a safetensors file: a length, a JSON header that says where each tensor lies, and their bytes.

Tensors are views of the mapped file, so processes that use the same model share its memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_LENGTH_BYTES: Final = 8
_TYPES: Final[Mapping[str, str]] = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Every tensor by its name. ValueError when the file is none, or is cut off."""
    data = np.memmap(path, np.uint8, "r")
    length = int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
    begin = _LENGTH_BYTES + length
    if len(data) < begin:
        raise ValueError("the header is cut off")
    header = json.loads(data[_LENGTH_BYTES:begin].tobytes())
    tensors = {}
    for name, described in header.items():
        if name != "__metadata__":
            if described["dtype"] not in _TYPES:
                raise ValueError(f"tensor {name} has type {described['dtype']}")
            start, end = described["data_offsets"]
            stored = data[begin + start : begin + end].view(_TYPES[described["dtype"]])
            tensors[name] = stored.reshape(described["shape"])
    return tensors
