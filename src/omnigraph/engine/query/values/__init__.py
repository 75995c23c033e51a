"""Values of a running query: bindings, properties, comparisons, counts, and their JSON form."""
