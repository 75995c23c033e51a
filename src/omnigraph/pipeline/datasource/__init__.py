"""The Spark data source `omnigraph`: types as tables, frames as commits, the change feed as a stream."""
