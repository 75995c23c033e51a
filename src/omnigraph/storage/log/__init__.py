"""The graph log: commits, branches, pins, the cleanup journal, and the queues of a branch's writers."""
