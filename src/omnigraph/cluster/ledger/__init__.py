"""The applied state of a cluster: numbered revisions, the lock, and the payloads they name."""
