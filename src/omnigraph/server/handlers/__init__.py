"""One handler per operation: decode, ask for admission, make one call of the graph, and encode its result."""
