"""The operators of a read plan, each from bindings to bindings."""
