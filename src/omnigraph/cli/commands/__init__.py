"""One module per command, or per small family of commands; each imports what it needs only when it runs."""
