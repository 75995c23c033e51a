"""Who may do what: the questions that are asked before anything happens, and who answers them."""
