"""Text as the numbers that an uncased BERT model knows: cleaned, split into words, and words into known pieces."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LONGEST_WORD: Final = 100
_LEFT_OUT: Final = frozenset({"Cc", "Cf", "Co", "Cs"})
_IDEOGRAPHS: Final = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPieces:
    """The vocabulary of a model: a line per piece, the number of the line is what the model knows it by."""

    def __init__(self, vocabulary: Path) -> None:
        lines = vocabulary.read_text(encoding="utf-8").split("\n")
        self._numbers = {piece.rstrip("\r"): number for number, piece in enumerate(lines) if piece}
        self._first, self._last, self._unknown = (self._numbers[name] for name in ("[CLS]", "[SEP]", "[UNK]"))

    def tokens(self, text: str, most: int) -> list[int]:
        """The numbers of a text between those that begin and end one, cut off so that they are at most `most`."""
        tokens = [self._first]
        for word in _words(text):
            tokens += self._pieces(word)
            if len(tokens) >= most:
                break
        return [*tokens[: most - 1], self._last]

    def _pieces(self, word: str) -> list[int]:
        """The longest piece that a word begins with, and so on with the rest; a rest without one makes it unknown."""
        if len(word) > _LONGEST_WORD:
            return [self._unknown]
        pieces = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                number = self._numbers.get(word[start:end] if start == 0 else f"##{word[start:end]}")
                if number is not None:
                    pieces.append(number)
                    start = end
                    break
            else:
                return [self._unknown]
        return pieces


def _words(text: str) -> Iterator[str]:
    """Words in lower case without accents; every punctuation mark and every ideograph is a word of its own."""
    spaced = "".join(_cleaned(text))
    bare = "".join(char for char in unicodedata.normalize("NFD", spaced) if unicodedata.category(char) != "Mn")
    for word in "".join(char.lower() for char in bare).split():  # a letter at a time: no final sigma
        start = 0
        for place, char in enumerate(word):
            if _is_punctuation(char):
                if start < place:
                    yield word[start:place]
                yield char
                start = place + 1
        if start < len(word):
            yield word[start:]


def _cleaned(text: str) -> Iterator[str]:
    for char in text:
        code = ord(char)
        if char in "\t\n\r" or unicodedata.category(char) == "Zs":
            yield " "
        elif any(low <= code <= high for low, high in _IDEOGRAPHS):
            yield f" {char} "
        elif code not in (0, 0xFFFD) and unicodedata.category(char) not in _LEFT_OUT:
            yield char


def _is_punctuation(char: str) -> bool:
    """ASCII symbols such as `$` and `^` count as punctuation too, though Unicode has other names for them."""
    code = ord(char)
    ascii_symbol = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_symbol or unicodedata.category(char).startswith("P")
