"""Functions of texts. Positions and lengths count code points, from 0; a negative one is refused.

Arrow does the work where the other arguments are the same for all rows. Case follows Unicode in full, so that a letter
may become two. Regular expressions are RE2's, which take linear time. A kernel gets columns without nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.query.value_columns import list_array, list_offsets
from omnigraph.engine.query.values.compare import as_mask
from omnigraph.engine.query.values.elementwise import Argument, Kernel, Part
from omnigraph.engine.query.values.list_functions import reverse_lists
from omnigraph.errors import EvaluationRule
from omnigraph.language.values import pattern_problem

_CONTINUES: Final = (0xC0, 0x80)
"""Mask and bits of a UTF-8 byte that does not begin a code point."""
_LARGEST_POSITION: Final = 2**62
# Of a part of a text: where it begins. Of a code point too, and whether each of its bytes begins one.
_PIECE_BYTES: Final = 16
_CHARACTER_BYTES: Final = 24


def concatenate_texts(part: Part, left: Argument, right: Argument) -> pa.Array:
    """`left + right`"""
    part.reserve(_text_bytes(part, left) + _text_bytes(part, right))
    return pc.binary_join_element_wise(left, right, "")


def _text_bytes(part: Part, texts: Argument) -> int:
    """How many bytes the texts of all rows have."""
    if isinstance(texts, pa.Scalar):
        return part.size * len(texts.as_py().encode())
    return int(pc.sum(pc.binary_length(texts)).as_py() or 0)


# ---- letters --------------------------------------------------------------------------------------------


def _change_case(of_ascii: Callable[[pa.Array], pa.Array], of_any: Callable[[str], str]) -> Kernel:
    # Arrow maps one code point to one, which is all there is to do for ASCII. (Its `ascii_upper` damages a text column
    # whose first offset is not 0.)
    def kernel(part: Part, texts: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(texts)).as_py():
            return of_ascii(texts)
        return pa.array([of_any(text) for (text,) in part.each(texts)], pa.string())

    return kernel


def _reverse(part: Part, values: pa.Array) -> pa.Array:
    """The text backwards, or the list."""
    return pc.utf8_reverse(values) if pa.types.is_string(values.type) else reverse_lists(part, values)


# ---- parts of texts -------------------------------------------------------------------------------------


def _require_positions(part: Part, *positions: Argument) -> None:
    """Refuse negative positions and lengths."""
    for each in positions:
        if int((each if isinstance(each, pa.Scalar) else pc.min(each)).as_py()) < 0:
            part.fail(EvaluationRule.BAD_ARGUMENT, "a position or length of a text is negative")


def _position(scalar: pa.Scalar) -> int:
    return min(int(scalar.as_py()), _LARGEST_POSITION)


def _left(part: Part, texts: Argument, count: Argument) -> pa.Array:
    return _substring(part, texts, pa.scalar(0), count)


def _right(part: Part, texts: Argument, count: Argument) -> pa.Array:
    _require_positions(part, count)
    if isinstance(texts, pa.Array) and isinstance(count, pa.Scalar) and (last := _position(count)):
        return pc.utf8_slice_codeunits(texts, start=-last)
    return _text_array(text[-n:] if n else "" for text, n in part.each(texts, count))


def _substring(part: Part, texts: Argument, start: Argument, count: Argument | None = None) -> pa.Array:
    bounds = [start] if count is None else [start, count]
    _require_positions(part, *bounds)
    if isinstance(texts, pa.Array) and all(isinstance(bound, pa.Scalar) for bound in bounds):
        first, *counts = map(_position, bounds)
        return pc.utf8_slice_codeunits(texts, start=first, stop=first + counts[0] if counts else None)
    if count is None:
        return _text_array(text[first:] for text, first in part.each(texts, start))
    return _text_array(text[first : first + n] for text, first, n in part.each(texts, start, count))


def _text_array(texts: Any) -> pa.Array:
    return pa.array(list(texts), pa.string())


def _replace(part: Part, texts: Argument, old: Argument, new: Argument) -> pa.Array:
    """Every occurrence of a text by another. The empty text occurs around every code point."""
    if isinstance(texts, pa.Array) and isinstance(old, pa.Scalar) and isinstance(new, pa.Scalar) and old.as_py():
        pattern, by = old.as_py(), new.as_py()
        grown = len(by.encode()) - len(pattern.encode())
        if grown > 0:
            occurrences = int(pc.sum(pc.count_substring(texts, pattern)).as_py())
            part.reserve(_text_bytes(part, texts) + occurrences * grown)
        return pc.replace_substring(texts, pattern, by)
    rows = list(part.each(texts, old, new))
    part.reserve(sum(len(text) + max(0, len(by) - len(pattern)) * text.count(pattern) for text, pattern, by in rows))
    return _text_array(text.replace(pattern, by) for text, pattern, by in part.watch(rows))


# ---- lists of texts -------------------------------------------------------------------------------------


def _split(part: Part, texts: Argument, separator: Argument) -> pa.Array:
    """The parts between the separators; without a separator, the code points."""
    if isinstance(separator, pa.Scalar) and isinstance(texts, pa.Array):
        return _split_by(part, texts, separator.as_py()) if separator.as_py() else _characters(part, texts)
    part.reserve(_CHARACTER_BYTES * _text_bytes(part, texts))
    lists = [text.split(by) if by else list(text) for text, by in part.each(texts, separator)]
    return pa.array(lists, pa.list_(pa.string()))


def _split_by(part: Part, texts: pa.Array, separator: str) -> pa.Array:
    pieces = int(pc.sum(pc.count_substring(texts, separator)).as_py()) + part.size
    part.reserve(2 * _text_bytes(part, texts) + _PIECE_BYTES * pieces)
    return pc.split_pattern(texts, separator)


def _characters(part: Part, texts: pa.Array) -> pa.Array:
    """A text for each code point, without a copy of the bytes."""
    part.reserve(_CHARACTER_BYTES * _text_bytes(part, texts))
    lengths = pc.utf8_length(texts).to_numpy(zero_copy_only=False)
    _, offsets, data = texts.buffers()
    if data is None:
        return list_array(list_offsets(lengths), pa.array([], pa.string()))
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    mask, bits = _CONTINUES
    begins = np.flatnonzero((content & mask) != bits) + bounds[0]
    ends = np.append(begins, bounds[-1]).astype(np.int32)
    characters = pa.StringArray.from_buffers(len(begins), pa.py_buffer(ends), data)
    return list_array(list_offsets(lengths), characters)


def _join(part: Part, lists: Argument, separator: Argument) -> pa.Array:
    """The texts of a list with a separator between them; null if one of them is."""
    lists, separators = part.array(lists), part.array(separator)
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    items = pc.list_flatten(lists)
    between = pc.binary_length(separators).to_numpy(zero_copy_only=False).astype(np.int64) * lengths
    part.reserve(2 * (int(pc.sum(pc.binary_length(items)).as_py() or 0) + int(between.sum())))
    return pc.binary_join(lists, separators)


# ---- tests ----------------------------------------------------------------------------------------------


def _ends_with(part: Part, texts: Argument, ends: Argument) -> pa.Array:
    if isinstance(texts, pa.Array) and isinstance(ends, pa.Scalar):
        return pc.ends_with(texts, ends.as_py())
    return pa.array([text.endswith(end) for text, end in part.each(texts, ends)], pa.bool_())


def _matches(part: Part, texts: Argument, patterns: Argument) -> pa.Array:
    """Whether a regular expression matches the whole text."""
    texts = part.array(texts)
    if isinstance(patterns, pa.Scalar):
        return pc.match_substring_regex(texts, _anchor(part, patterns.as_py()))
    encoded = patterns.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    matches = np.zeros(part.size, np.bool_)
    for code, pattern in enumerate(encoded.dictionary.to_pylist()):
        part.budget.check()
        rows = np.flatnonzero(codes == code)
        matches[rows] = as_mask(pc.match_substring_regex(texts.take(pa.array(rows)), _anchor(part, pattern)))
    return pa.array(matches)


def _anchor(part: Part, pattern: str) -> str:
    """A pattern that matches where the given one matches the whole text."""
    # By itself first, or its brackets could pair with ours. A quotation that it leaves open would swallow the end.
    forms = [pattern, rf"\A(?:{pattern})\z", rf"\A(?:{pattern}\E)\z"]
    problems = [pattern_problem(form) for form in forms]
    if problems[0] is not None or (problems[1] is not None and problems[2] is not None):
        part.fail(EvaluationRule.INVALID_PATTERN, f"invalid regular expression: {problems[0] or problems[1]}")
    return forms[1] if problems[1] is None else forms[2]


def _size(part: Part, values: pa.Array) -> pa.Array:
    """Code points of a text, items of a list."""
    of_text = pa.types.is_string(values.type)
    return (pc.utf8_length(values) if of_text else pc.list_value_length(values)).cast(pa.int64())


TEXT_FUNCTIONS: Final[Mapping[str, Kernel]] = {
    "lower": _change_case(pc.utf8_lower, str.lower),
    "upper": _change_case(pc.utf8_upper, str.upper),
    "trim": lambda part, texts: pc.utf8_trim_whitespace(texts),
    "ltrim": lambda part, texts: pc.utf8_ltrim_whitespace(texts),
    "rtrim": lambda part, texts: pc.utf8_rtrim_whitespace(texts),
    "reverse": _reverse,
    "left": _left,
    "right": _right,
    "substring": _substring,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "size": _size,
    "ends_with": _ends_with,
    "matches": _matches,
}
