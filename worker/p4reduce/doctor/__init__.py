"""`p4reduce doctor`: look from a worker's seat at all that a collective needs, and say what to change."""
