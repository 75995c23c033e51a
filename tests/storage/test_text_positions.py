"""Texts are found at their own position and nowhere else, whatever their hashes are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.storage.tables.memory import text_positions
from omnigraph.storage.tables.memory.key_hashes import Hashes, key_hashes
from omnigraph.storage.tables.memory.text_positions import TextPositions

HASHES: dict[str, Callable[[Sequence[pa.Array]], Hashes]] = {
    "real": key_hashes,
    "few": lambda columns: key_hashes(columns) & np.uint64(3 << 62),
    "one": lambda columns: np.full(len(columns[0]), 2**64 - 1, np.uint64),
}
TEXTS = st.text("abß", max_size=4)


@pytest.mark.parametrize("hashes", HASHES)
@pytest.mark.parametrize("at_least", [0, 1 << 12], ids=["by a table", "by Arrow"])
@settings(max_examples=40, deadline=None)
@given(texts=st.sets(TEXTS), wanted=st.lists(st.none() | TEXTS), cut=st.integers(0, 5))
def test_each_text_has_its_position(
    hashes: str, at_least: int, texts: set[str], wanted: list[str | None], cut: int
) -> None:
    ordered = sorted(texts, key=lambda text: text[::-1])
    chunks = [pa.array(part, pa.string()) for part in (wanted[:cut], wanted[cut:])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_positions, "key_hashes", HASHES[hashes])
        patch.setattr(text_positions, "_TABLE_AT_LEAST", at_least)
        patch.setattr(text_positions, "_LOOKED_UP_AT_ONCE", 3)
        positions = TextPositions(pa.array(["", *ordered], pa.string()).slice(1)).find(pa.chunked_array(chunks))
    assert positions.tolist() == [ordered.index(text) if text in texts else -1 for text in wanted]


def test_wide_texts_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_positions, "_TABLE_AT_LEAST", 0)
    wide = TextPositions(pa.array(["a", "b"], pa.large_string()))
    assert wide.find(pa.chunked_array([pa.array(["b", "c"], pa.large_string())])).tolist() == [1, -1]
    plain = TextPositions(pa.array(["a", "b"]))
    assert plain.find(pa.chunked_array([], pa.string())).tolist() == []
