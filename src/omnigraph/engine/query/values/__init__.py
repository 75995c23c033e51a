"""Values of a plan for bound rows: tests, calculations and functions."""
