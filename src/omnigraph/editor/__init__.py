"""The language server: what an editor asks about schemas, queries, pipelines, policies and clusters."""
