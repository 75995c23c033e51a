"""The HTTP server: many people and agents share graphs through one address."""
