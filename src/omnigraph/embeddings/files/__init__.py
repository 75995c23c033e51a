"""Files of graph records that get their vectors before they are loaded: what `omnigraph embed` does."""
