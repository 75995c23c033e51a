"""Servers, clusters and pipelines: the HTTP API as a table, what its requests and errors hold, and reports."""
