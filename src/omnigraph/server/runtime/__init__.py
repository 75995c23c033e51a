"""The processes of a server: workers and their supervisor, logs, metrics and traces."""
