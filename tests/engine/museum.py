"""One small schema that has every kind of property, key and constraint, and short ways to write its records."""

from __future__ import annotations

import json

from omnigraph.language.catalog import Catalog
from omnigraph.language.schema.compile import accept_schema

SCHEMA = """
node Curator {
  badge: String @key
  name: String
  level: enum(junior, senior)?
  hired: Date?
  email: String?
  pay: F64?
  @unique(email)
  @range(pay, 0..500000)
  @check(badge, "^[a-z]")
}
node Exhibit {
  accession: U32
  wing: String
  title: String?
  tags: [String]?
  photo: Blob?
  vec: Vector(3)?
  @key(accession, wing)
}
node Memo { text: String }
node Sample {
  code: U32 @key
  flag: Bool?
  small: I32?
  large: I64?
  positive: U64?
  narrow: F32?
  wide: F64?
  day: Date?
  moment: DateTime?
  scores: [I32]?
  days: [Date]?
}
edge Guards: Curator -> Exhibit @card(0..2) { since: DateTime? }
edge Cites: Memo -> Memo { strength: I32  mood: enum(kind, cold)? }
"""


def museum() -> Catalog:
    return accept_schema(SCHEMA)


def node(type_name: str, **data: object) -> str:
    return json.dumps({"type": type_name, "data": data})


def edge(type_name: str, source: str, target: str, **data: object) -> str:
    return json.dumps({"edge": type_name, "from": source, "to": target, "data": data})


def lines(*texts: str) -> bytes:
    return "\n".join(texts).encode()
