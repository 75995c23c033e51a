"""Bulk jobs beside pipeline files: load, export, optimize, re-embed, write a DataFrame."""
