"""Entity tags: how a client says which version of an answer it has, and how it is told."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_ITEM: Final = re.compile(r'[ \t]*+(?:(W/)?("[\x21\x23-\x7e\x80-\xff]*+"))?[ \t]*+(?:,|\Z)')
"""One place of a list, which may be empty. Nothing is looked at twice, however long the list is."""
_ANY: Final = "*"
_EVERY: Final[list[tuple[bool, str]]] = []
"""What `*` lists: no tag in particular, and so every one."""


def tag_of(*parts: str | bytes) -> str:
    """A strong tag: equal parts give equal tags."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return f'"{digest.hexdigest()[:32]}"'


def matches_strongly(header: str, tag: str) -> bool:
    """`If-Match`: the list holds this very tag. A malformed list matches nothing."""
    listed = _listed(header)
    return listed is not None and (listed is _EVERY or (False, tag) in listed)


def matches_weakly(header: str, tag: str) -> bool:
    """`If-None-Match`: the list holds this tag, marked as weak or not. A malformed list matches nothing."""
    listed = _listed(header)
    return listed is not None and (listed is _EVERY or any(known == tag for _, known in listed))


def is_this_strong_tag(header: str, tag: str) -> bool:
    """`If-Range`: exactly this tag, and a strong one."""
    return header.strip() == tag


def _listed(header: str) -> list[tuple[bool, str]] | None:
    """The tags of a list, each with whether it is weak; None when it is malformed or empty."""
    text = header.strip()
    if text == _ANY:
        return _EVERY
    listed, at = [], 0
    while at < len(text):
        found = _ITEM.match(text, at)
        if found is None:
            return None
        if found[2] is not None:
            listed.append((found[1] is not None, found[2]))
        at = found.end()
    return listed or None
