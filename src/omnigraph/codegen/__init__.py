"""Typed Python and TypeScript from schemas and queries (`omnigraph codegen`)."""
