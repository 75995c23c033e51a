"""OmniGraph: a typed property graph on Lance, versioned as a whole like Git."""

from typing import TYPE_CHECKING, Any

__version__ = "0.10.0"
__all__ = ["Graph", "__version__"]

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph


def __getattr__(name: str) -> Any:
    """Importing the package costs nothing; the engine, and Lance with it, is loaded when first used."""
    if name == "Graph":
        from omnigraph.engine.graph import Graph

        return Graph
    raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")
