"""Which P4Runtime entries a grant needs, by target."""
