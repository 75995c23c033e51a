"""The `omnigraph` command: a thin skin over the packages below it, one module per command."""
