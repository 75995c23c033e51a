"""Results, reports, failures and progress of commands, as text and as JSON."""
