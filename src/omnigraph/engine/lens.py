"""The lens, through which an actor sees a graph, for packages that may not import the language."""

from omnigraph.language.query.lens import OPEN, Lens

__all__ = ["OPEN", "Lens"]
