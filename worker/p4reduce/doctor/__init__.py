"""`p4reduce doctor`: check, as one rank, all that a collective needs, and say what to change."""
