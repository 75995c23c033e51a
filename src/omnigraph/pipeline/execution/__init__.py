"""One pipeline run, from its plan to its report."""
