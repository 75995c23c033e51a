"""The schema language: text -> syntax tree -> checked declarations -> catalog, and back to canonical text."""
