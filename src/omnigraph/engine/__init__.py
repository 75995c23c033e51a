"""The engine: graphs, snapshots, transactions and everything that reads or changes data."""
