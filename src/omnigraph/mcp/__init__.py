"""A graph as tools of an agent: schema, queries, search, branches and history over the Model Context Protocol."""
