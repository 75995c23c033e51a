"""Writes: what callers hand over, and how it becomes a change of the graph."""
