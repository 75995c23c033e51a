"""From the applied state to the desired one: observed graphs, changes, approvals and the preview of an apply."""
