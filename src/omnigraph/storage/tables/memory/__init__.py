"""What a process keeps in memory of table versions: where rows lie, columns, and indexes of their values."""
