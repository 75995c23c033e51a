"""The two plain forms of a record, read from a line in one step.

Almost every line of almost every input is one of them, and reading it straight into its form is much cheaper than
into a dictionary that is then taken apart. Any other line is an ordinary JSON value, which `envelope` checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.json import Decoder


class PlainNode(Struct, forbid_unknown_fields=True, gc=False):
    """`{"type": …, "data": {…}}` and nothing else."""

    type: str
    data: dict[str, Any] | UnsetType = UNSET


class PlainEdge(Struct, forbid_unknown_fields=True, gc=False):
    """`{"edge": …, "from": …, "to": …, "data": {…}}` and nothing else."""

    edge: str
    source: str | int = field(name="from")
    target: str | int = field(name="to")
    data: dict[str, Any] | UnsetType = UNSET


_node = Decoder(PlainNode).decode
_edge = Decoder(PlainEdge).decode
_EDGE_START: Final = b'{"edge"'


def read_plain(lines: Sequence[bytes]) -> list[object]:
    """The records of lines that all have a plain form; raises msgspec.MsgspecError when one does not."""
    return [_edge(line) if line.startswith(_EDGE_START) else _node(line) for line in lines]
