"""The read runtime: operators over row-id bindings, traversal, ordering, aggregation, search and results."""
