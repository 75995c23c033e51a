"""Checks one query against a catalog: names, types, and the rules that tie its parts together."""
