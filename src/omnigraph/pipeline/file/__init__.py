"""The pipeline file: its YAML with positions, its model, and the options of its sources."""
