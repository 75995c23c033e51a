"""Histories drawn as lanes."""

from __future__ import annotations

import pytest

from omnigraph.cli.printing.history import Node, dag_style, draw


def nodes(*texts: str) -> list[Node]:
    """`m<a,b` is a commit m with the parents a and b."""
    split = [text.partition("<") for text in texts]
    return [Node(id, tuple(parents.split(",")) if parents else (), id) for id, _, parents in split]


@pytest.mark.parametrize(
    ("history", "picture"),
    [
        ([], []),
        (["b<a", "a"], ["* b", "* a"]),
        (
            ["m<b,c", "c<a", "b<a", "a"],
            ["* m", "|\\", "| * c", "* | b", "|/", "* a"],
        ),
        # A branch of a branch, merged twice.
        (
            ["n<m,d", "m<b,c", "d<c", "c<a", "b<a", "a"],
            ["* n", "|\\", "* | m", "|\\ \\", "| | * d", "| |/", "| * c", "* | b", "|/", "* a"],
        ),
        # What was merged is on a branch that no longer exists.
        (["m<b,gone", "b<a", "a"], ["* m", "* b", "* a"]),
        # The listing was cut before the fork.
        (["m<b,c", "c<a", "b<a"], ["* m", "|\\", "| * c", "* b"]),
        # A lane joins across another one.
        (
            ["m<b,c", "c<x,y", "y<a", "x<q", "b<a", "a<q", "q"],
            ["* m", "|\\", "| * c", "| |\\", "| | * y", "| * | x", "* | | b", "|_|/", "* | a", "|/", "* q"],
        ),
    ],
)
def test_pictures(history: list[str], picture: list[str]) -> None:
    assert list(draw(nodes(*history))) == picture


def test_only_the_strokes_are_coloured() -> None:
    assert dag_style("|\\ \\") == "cyan"
    assert dag_style("| * c") == ""
