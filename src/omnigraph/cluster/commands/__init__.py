"""The `omnigraph cluster` commands, one function each."""
