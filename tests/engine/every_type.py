"""A graph with every type that a property can have, and the values at which forms of it differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omnigraph import Graph

_SCALARS = ("String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime")
_LISTS = tuple(f"{scalar.lower()}s" for scalar in _SCALARS)
_PROPERTIES = "\n".join(
    [
        *(
            f"  {scalar.lower()}: {scalar}?\n  {name}: [{scalar}]?"
            for scalar, name in zip(_SCALARS, _LISTS, strict=True)
        ),
        *("  level: enum(high, low)?", "  vec: Vector(3)?", "  blob: Blob?"),
    ]
)
SCHEMA = f"node Every {{\n  key: String @key\n{_PROPERTIES}\n}}\nedge Joins: Every -> Every {{\n  at: DateTime?\n}}\n"

_LARGEST: dict[str, Any] = {
    "string": 'quote " back \\ slash / line\n tab\t nul\x00 é 😀  end',
    "bool": True,
    "i32": -(2**31),
    "i64": 2**63 - 1,
    "u32": 2**32 - 1,
    "u64": 2**64 - 1,
    "f32": 0.1,
    "f64": -0.0,
    "date": "2031-05-04",
    "datetime": "2031-05-04T01:02:03.456Z",
    "level": "low",
}
_OTHERS: dict[str, Any] = {
    "string": "",
    "bool": False,
    "i32": 2**31 - 1,
    "i64": -(2**53) - 1,
    "u32": 0,
    "u64": 2**53 + 1,
    "f32": 3.4028234663852886e38,
    "f64": 5e-324,
    "date": -719_529,
    "datetime": 253_402_300_800_000,
    "level": "high",
}


def _entity(key: str, **data: Any) -> str:
    return json.dumps({"type": "Every", "data": {"key": key, **data}})


RECORDS = [
    _entity("nothing"),
    _entity("empty", blob="base64:", **{name: [] for name in _LISTS}),
    _entity("one", vec=[1, -0.0, 1e-40], blob="base64:AAEC/w==", **_LARGEST),
    _entity("two", vec=[0.1, 0.2, 0.3], **_OTHERS, **{n: [_LARGEST[n[:-1]], _OTHERS[n[:-1]]] for n in _LISTS}),
    json.dumps({"edge": "Joins", "from": "one", "to": "two", "data": {"id": "j1", "at": -1}}),
    json.dumps({"edge": "Joins", "from": "two", "to": "two", "data": {"id": "j2"}}),
]


def every_type(uri: Path) -> Graph:
    graph = Graph.init(uri, SCHEMA)
    graph.load("\n".join(RECORDS), mode="append")
    return graph
