"""A sentence transformer on this machine: its tokens, its network in NumPy, and the provider that runs it."""
