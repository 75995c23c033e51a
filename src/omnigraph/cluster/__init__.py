"""Clusters: configurations, plans and applies, the ledger of applied states, and what a server reads of it."""
