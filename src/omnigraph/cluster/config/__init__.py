"""The configuration of a cluster: `cluster.yaml`, the files it names, and the state they ask for."""
