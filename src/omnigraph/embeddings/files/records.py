"""One line of a file of graph records: what it is, how its values read as text, and the line with another member.

Values stay the JSON that they were, so numbers of any length and precision come out as they went in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from omnigraph.errors import BadRequestError

_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON object. `type` and `data` are those of an entity; edges and other lines have neither."""

    line: bytes
    members: Mapping[str, Raw]
    type: str | None
    data: Mapping[str, Raw]

    @classmethod
    def of(cls, line: bytes, number: int) -> Record:
        """The record on a line that is not blank; `number` counts those."""
        try:
            line.decode()  # the decoder takes strings as they are
            compact = msgspec.json.format(line, indent=-1)
            members = _OBJECT.decode(compact)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise BadRequestError(f"line {number} is not valid JSON: {why}") from None
        named = members.get("type")
        if named is None or not bytes(named).startswith(b'"'):
            return cls(compact, members, None, {})
        data = members.get("data")
        if data is None or not bytes(data).startswith(b"{"):
            raise BadRequestError(f"line {number} is missing object field 'data'")
        return cls(compact, members, _text(named), _OBJECT.decode(data))

    def with_data(self, data: Mapping[str, Raw]) -> bytes:
        """The line with other data."""
        return msgspec.json.encode({**self.members, "data": Raw(msgspec.json.encode(data))})

    def text(self, fields: Sequence[str]) -> str:
        """What is embedded of an entity: its type, and every field that has something to say."""
        lines = [f"type: {self.type}"]
        lines += [f"{name}: {shown}" for name in fields if name in self.data and (shown := rendered(self.data[name]))]
        return "\n".join(lines)


def rendered(value: Raw) -> str:
    """A value as text: strings trimmed, lists joined by commas, null nothing, everything else the JSON it is."""
    json = bytes(value)
    if json == b"null":
        return ""
    if json.startswith(b'"'):
        return _text(value).strip()
    if json.startswith(b"["):
        return ", ".join(shown for element in _ARRAY.decode(json) if (shown := rendered(element)))
    return json.decode()


def is_missing(value: Raw | None) -> bool:
    """Whether a member holds no vector: it is absent, null or empty."""
    return value is None or bytes(value) in (b"null", b"[]")


def as_json(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def _text(value: Raw) -> str:
    return msgspec.json.decode(value, type=str)
