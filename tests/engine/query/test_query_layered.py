"""An adjacency with changes laid over it: in every answer the one that would be built of its pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.query.traversal import adjacency
from omnigraph.engine.query.traversal.adjacency import (
    Adjacency,
    LayeredAdjacency,
    Neighbours,
    Pairs,
    change_layer,
    either_way,
    end_counts,
    has_pairs,
    of_pairs,
)
from omnigraph.storage.tables.memory.row_space import RowSpace, extend_space

GAP = 3


def space_of(size: int, *, dense: bool) -> RowSpace:
    return RowSpace(np.arange(size) * (1 if dense else GAP))


def pairs(edges: Any) -> Pairs:
    found = np.array(sorted(edges), np.int64).reshape(-1, 2)
    return Pairs(found[:, 0], found[:, 1])


def assert_alike(found: Neighbours, expected: Adjacency, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = expected.sources.rows
    assert found.sources.rows.tolist() == rows.tolist()
    assert found.all_counts().tolist() == expected.all_counts().tolist()
    everything = [rows, rows[::-1], np.concatenate((rows, rows)), random.permutation(rows)[: len(rows) // 2]]
    spans = [rows[low:] for low in range(len(rows))] + [rows[: len(rows) // 2], rows[1:-1]]
    strangers = np.array([10**6, -1])
    assert found.ends.rows.tolist() == expected.ends.rows.tolist()
    for some in [*everything, *spans, strangers, np.concatenate((rows, strangers))]:
        nodes = found.sources.positions(some)
        assert nodes.tolist() == expected.sources.positions(some).tolist()
        assert found.counts(nodes).tolist() == expected.counts(nodes).tolist()
        counts, at = found.entries(nodes)
        known_counts, known_at = expected.entries(nodes)
        assert counts.tolist() == known_counts.tolist()
        assert found.targets_at(at).tolist() == expected.targets_at(known_at).tolist()
        weights = random.integers(1, 9, int(counts.sum()))
        for weighing in (None, weights):
            ends = [end_counts(*each, weighing).tolist() for each in ((found, at), (expected, known_at))]
            assert ends[0] == ends[1]
    numbers = np.append(np.arange(len(rows)), -1)
    left, right = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    assert has_pairs(found, left, right).tolist() == has_pairs(expected, left, right).tolist()


@settings(max_examples=60, deadline=None)
@given(st.data(), st.booleans(), st.integers(0, 2**32))
def test_every_answer_is_that_of_the_adjacency_built_anew(data: Any, dense: bool, seed: int) -> None:
    size = data.draw(st.integers(0, 6))

    def some() -> set[tuple[int, int]]:
        node = st.integers(0, max(0, size - 1))
        return data.draw(st.sets(st.tuples(node, node), max_size=10)) if size else set()

    edges = some()
    space = space_of(size, dense=dense)
    out: Neighbours = of_pairs(space, space, *pairs(edges))
    back: Neighbours = of_pairs(space, space, *pairs(edges).reverse())
    both = either_way(out, back)
    for _ in range(data.draw(st.integers(1, 4))):
        size += data.draw(st.sampled_from((0, 0, 1, 3)))
        lost, added = some(), some()
        edges = (edges - lost) | added
        larger = extend_space(space, space_of(size, dense=dense).rows)
        assert larger is not None
        space = larger
        out = change_layer(out, space, space, pairs(lost), pairs(added))
        back = change_layer(back, space, space, pairs(lost).reverse(), pairs(added).reverse())
        fresh = space_of(size, dense=dense)
        expected = of_pairs(fresh, fresh, *pairs(edges)), of_pairs(fresh, fresh, *pairs(edges).reverse())
        linked = LayeredAdjacency(space, space, out.base, out.layer, reverse=back)
        assert_alike(linked, expected[0], seed)
        assert_alike(linked.merged, expected[0], seed)
        assert_alike(either_way(out, back, both), either_way(*expected), seed)
        assert linked.size == len(edges)


def test_growing_refuses_to_renumber() -> None:
    space = extend_space(RowSpace(np.array([2, 5])), np.array([5, 7, 9]))
    assert space is not None
    assert space.rows.tolist() == [2, 5, 7, 9]
    assert extend_space(space, np.array([2, 9])) is space
    assert extend_space(space, np.array([6, 12])) is None
    assert extend_space(RowSpace(np.array([2, 5])), np.array([1])) is None
    assert space.positions(np.array([9, 3, 2, 7, 100])).tolist() == [3, -1, 0, 2, -1]


def test_a_layer_shares_the_arrays_it_lies_on_and_is_folded_once_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adjacency, "_SMALLEST_FOLDED", 10)
    size = 100
    space = RowSpace(np.arange(size))
    ring = Pairs(np.arange(size), (np.arange(size) + 1) % size)
    base = of_pairs(space, space, *ring)
    none = pairs([])
    found: Neighbours = base
    steps = 0
    while steps == 0 or not found.is_due_for_merge:
        steps += 1
        found = change_layer(found, space, space, none, pairs([(steps, (steps + 50) % size)]))
        assert isinstance(found, LayeredAdjacency)
        assert found.base is base
        assert len(found.layer.targets) == 2 * steps, "the lists of the nodes that changed and no others"
    assert steps == size // 4 // 3 + 1, "a list has two entries, and counts as a node besides"
    own = found.nbytes
    assert own < base.nbytes
    assert len(found.merged.targets) == size + steps
    assert found.nbytes == own + found.merged.offsets.nbytes + found.merged.targets.nbytes
    assert not np.shares_memory(found.merged.targets, base.targets)
