"""Rows of the graph's types: their columns, their values, and the forms in which they come in and go out."""
