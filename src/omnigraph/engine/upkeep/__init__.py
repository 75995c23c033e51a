"""Upkeep: compaction, cleanup, verification and repair. None of it changes content."""
