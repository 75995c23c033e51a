"""Rules that span rows, checked by executors over everything that comes in and what is stored."""
