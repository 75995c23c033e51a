"""What a provider says about a failure, without the key and the texts it was sent.

A provider may quote a request back at us, whole, in part or escaped as JSON, and what it says ends in logs and in
answers to other people. So every piece of the message that could come from a secret is taken out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

TAKEN_OUT: Final = "[redacted]"
_LONGEST_MESSAGE: Final = 600
_PIECE_OF_TEXT: Final = 12
_PIECE_OF_KEY: Final = 6


def redacted(message: str, key: str, texts: Sequence[str]) -> str:
    """A provider's message, at most a few lines of it, with no piece of the key or of a text."""
    message = message[: 2 * _LONGEST_MESSAGE]
    hidden = [False] * len(message)
    _hide(message, hidden, [key], _PIECE_OF_KEY)
    _hide(message, hidden, _spellings(texts), _PIECE_OF_TEXT)
    parts = []
    for place, char in enumerate(message):
        if not hidden[place]:
            parts.append(char)
        elif place == 0 or not hidden[place - 1]:
            parts.append(TAKEN_OUT)
    shown = " ".join("".join(parts).split())
    return shown if len(shown) <= _LONGEST_MESSAGE else shown[: _LONGEST_MESSAGE - 1] + "…"


def _spellings(texts: Iterable[str]) -> list[str]:
    spelled: dict[str, None] = {}
    for text in texts:
        for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
            spelled[form] = None
    return list(spelled)


def _hide(message: str, hidden: list[bool], secrets: Sequence[str], piece: int) -> None:
    """Mark every stretch of `piece` characters or more that a secret has too; a shorter one where it stands alone."""
    for secret in secrets:
        if len(secret) < piece and secret.strip():
            for found in re.finditer(rf"(?<!\w){re.escape(secret.strip())}(?!\w)", message):
                hidden[found.start() : found.end()] = [True] * (found.end() - found.start())
    together = "\0".join(secret for secret in secrets if len(secret) >= piece)
    for i in range(len(message) - piece + 1):
        if message[i : i + piece] in together:
            hidden[i : i + piece] = [True] * piece
