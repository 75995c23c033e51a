"""Traversal: adjacency of edge types, in memory and at rest, and the choice of where neighbours come from."""
