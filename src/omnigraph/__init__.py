"""OmniGraph: a typed property graph on Lance, versioned as a whole like Git."""

from typing import TYPE_CHECKING, Any

__version__ = "0.10.0"
__all__ = ["Graph", "MaintenancePolicy", "Retention", "__version__", "init", "open"]

if TYPE_CHECKING:
    from omnigraph.api.upkeep import MaintenancePolicy, Retention
    from omnigraph.graph import Graph
    from omnigraph.opening import init, open


def __getattr__(name: str) -> Any:
    """Importing the package costs nothing; the engine, and Lance with it, is loaded when first used."""
    if name == "Graph":
        from omnigraph.graph import Graph

        return Graph
    if name in ("MaintenancePolicy", "Retention"):
        from omnigraph.api import upkeep

        return getattr(upkeep, name)
    if name in ("init", "open"):
        from omnigraph import opening

        return getattr(opening, name)
    raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")
