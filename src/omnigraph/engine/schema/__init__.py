"""The schema of a branch: how it changes, and the indexes that it declares."""
