"""Sources of a pipeline as DataFrames whose rows have numbers."""
