"""Schema changes: what they check, what they write, and how they are committed."""
