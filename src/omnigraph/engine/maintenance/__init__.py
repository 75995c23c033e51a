"""Maintenance: compaction, indexes, cleanup, verification and repair. None of it changes content."""
