"""What `omnigraph doctor` looks at: this machine, and the graph or server that is addressed."""
