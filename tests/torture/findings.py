"""What the judge found: once per kind, with an example and a count, in words that are the same every time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.torture.model import State, seen_as
from tests.torture.traces import Deed


@dataclass
class Finding:
    what: str
    example: str
    count: int = 1


class Findings:
    def __init__(self) -> None:
        self.found: dict[str, Finding] = {}

    def add(self, what: str, detail: object, deed: Deed | None = None) -> None:
        about = f" [{deed}]" if deed is not None else ""
        known = self.found.get(what)
        if known is None:
            self.found[what] = Finding(what, f"{detail}{about}")
        else:
            known.count += 1


def difference(expected: State, actual: State) -> str:
    found = []
    seen = seen_as(expected, actual.shape)
    for type_ in actual.shape.types:
        want, have = seen.of(type_.ident), actual.of(type_.ident)
        for key in sorted(want.keys() | have.keys()):
            if want.get(key) != have.get(key):
                found.append(f"{type_.name} {key} is {have.get(key)}, expected {want.get(key)}")
    return f"{len(found)} differences: " + "; ".join(found[:4])


def told(error: Exception) -> str:
    return f"{type(error).__name__} {neutral(str(error))}"


def neutral(text: str) -> str:
    """A message without what is different every time."""
    text = re.sub(r"[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{8}-[0-9a-f-]{27}", "<id>", text)
    return re.sub(r"\S*/\S*|'[^']*'|\d+", "#", text)[:160]
