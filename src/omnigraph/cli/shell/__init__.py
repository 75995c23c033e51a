"""The interactive shell: statements, what they mean, and the terminal they come from."""
