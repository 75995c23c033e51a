"""Embeddings: text into vectors, by one provider under one configuration.

`omnigraph.open` gives the engine a client of this package for the texts of queries, and for those of writes where the
schema asks for it. The package knows no graph. Opening a graph imports `environment` alone, and the rest when a text is
embedded.
"""
