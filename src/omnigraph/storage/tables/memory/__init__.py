"""What a process keeps in memory of table versions, so that a read need not ask Lance for it again."""
