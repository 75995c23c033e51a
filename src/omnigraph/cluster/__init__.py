"""Clusters: a storage root with many graphs, the ledger of what was applied to them, and the payloads it names."""
