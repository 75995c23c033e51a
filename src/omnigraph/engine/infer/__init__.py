"""Schemas proposed for files and frames (`omnigraph schema infer`, `omnigraph.infer_schema`)."""
