"""The query language: `.gq` text to a typed operator tree."""
