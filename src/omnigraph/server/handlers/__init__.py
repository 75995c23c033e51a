"""One handler per operation: ask the gate, count the write, make one call of the graph, encode what it returns."""
