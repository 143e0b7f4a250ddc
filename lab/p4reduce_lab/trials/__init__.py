"""Methods that were tried and not built: small trainings that say what each would have brought."""
