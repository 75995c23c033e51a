"""Searching works the same on a disk and on an object store."""

from __future__ import annotations

import numpy as np

from omnigraph.engine.query.search.bm25 import bm25
from omnigraph.engine.query.search.ranked_rows import Candidates
from omnigraph.engine.query.search.text import text_match
from omnigraph.engine.query.search.vectors import nearest
from omnigraph.language.catalog import Metric
from omnigraph.language.query.syntax import TextFunction
from omnigraph.storage.location import Location
from tests.conftest import Place
from tests.engine.search_tables import Shelf


def test_indexed_updated_and_new_rows_are_found(place: Place) -> None:
    shelf = Shelf(Location.parse(place.uri, place.environment or None))
    texts = ["moss", "moss tide", "tide sea wind", None]
    shelf.add(["a", "b", "c", "d"], texts, vectors=[[1, 0, 0], [0, 1, 0], [0, 0, 1], [9, 9, 9]])
    shelf.index_text().index_vectors(Metric.L2)
    shelf.put(["a"], ["sea moss sand"], vectors=[[0, 2, 0]]).add(["e"], ["moss moss"], vectors=[[0, 1, 1]])
    for _ in range(2):
        table = shelf.table
        assert shelf.ids_of(bm25(table, "text", "moss").row_ids) == ["e", "b", "a"]
        assert shelf.ids_of(bm25(table, "text", "moss", Candidates("id != 'e'"), k=1).row_ids) == ["b"]
        assert set(shelf.ids_of(text_match(table, "text", "seas", TextFunction.SEARCH))) == {"a", "c"}
        assert shelf.ids_of(nearest(table, "vector", Metric.L2, np.array([0, 1, 0.1], np.float32), 3).row_ids) == [
            "b",
            "e",
            "a",
        ]
        shelf.index_text().index_vectors(Metric.L2)
