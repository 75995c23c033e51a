"""Servers, clusters and pipelines: the HTTP API as a table, its requests and errors, and reports."""
