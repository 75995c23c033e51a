"""Spark: the session, tasks on executors, and graph types as Spark tables and streams."""
