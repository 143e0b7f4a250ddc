"""Methods that are not built: small trainings that measure what each would save."""
