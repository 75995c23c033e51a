"""What somebody sees of a graph, for the rooms above the engine that hand it on."""

from omnigraph.language.query.lens import OPEN, Lens

__all__ = ["OPEN", "Lens"]
