"""Rules that span rows, checked by executors over incoming and stored rows."""
