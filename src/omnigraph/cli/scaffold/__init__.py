"""The files that `omnigraph quickstart` writes, as they are written. A test runs every command that they show."""
