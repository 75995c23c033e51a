"""Policy: the rules that decide what an actor may do and see."""
