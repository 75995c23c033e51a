"""Tests of omnigraph; `tests/support` holds the parts that several of them share."""
