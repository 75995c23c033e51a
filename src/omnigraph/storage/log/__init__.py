"""The graph log: commits, branches, pins and reclaims, and how writers of one branch wait for each other."""
