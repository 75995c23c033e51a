"""History: commits, differences, change feeds and merges of whole-graph states."""
