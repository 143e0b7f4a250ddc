"""P4Runtime client: names instead of ids, integers instead of byte strings."""
