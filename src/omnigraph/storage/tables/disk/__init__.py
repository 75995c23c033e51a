"""Table versions of remote graphs on this machine's disk."""
