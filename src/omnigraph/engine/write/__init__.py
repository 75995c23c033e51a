"""Writing: from what a caller asks for to one published commit, or to nothing."""
