"""Bulk work on a graph: what a data plane of many processes asks of the engine.

One process, the driver, captures a head, plans, and publishes; any number of others, the executors, read and write
fragments of table versions. Executors get a `RemoteTable` and return JSON; they never commit. Nothing here knows Spark.
"""
