"""OmniGraph: a typed property graph on Lance, versioned as a whole like Git."""

__version__ = "0.10.0"
