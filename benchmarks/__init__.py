"""Benchmarks: wall-clock figures as ratios against a peer in the same run."""
