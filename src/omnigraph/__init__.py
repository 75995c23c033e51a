"""OmniGraph: a typed property graph on Lance, versioned as a whole like Git."""

from typing import TYPE_CHECKING, Any

__version__ = "0.10.0"
__all__ = [
    "AllowedBase",
    "ExternalBlobPolicy",
    "Graph",
    "MaintenancePolicy",
    "Retention",
    "__version__",
    "init",
    "open",
]

if TYPE_CHECKING:
    from omnigraph.engine.cleanup import Retention
    from omnigraph.engine.external_blobs import AllowedBase, ExternalBlobPolicy
    from omnigraph.engine.maintain import MaintenancePolicy
    from omnigraph.graph import Graph
    from omnigraph.opening import init, open


def __getattr__(name: str) -> Any:
    """Importing the package costs nothing; the engine, and Lance with it, is loaded when first used."""
    if name == "Graph":
        from omnigraph.graph import Graph

        return Graph
    if name in ("MaintenancePolicy", "Retention"):
        from omnigraph.engine import maintain

        return getattr(maintain, name)
    if name in ("AllowedBase", "ExternalBlobPolicy"):
        from omnigraph.engine import external_blobs

        return getattr(external_blobs, name)
    if name in ("init", "open"):
        from omnigraph import opening

        return getattr(opening, name)
    raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")
