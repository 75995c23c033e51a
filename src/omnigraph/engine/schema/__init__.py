"""Schemas of a graph: what is told about changing them."""
