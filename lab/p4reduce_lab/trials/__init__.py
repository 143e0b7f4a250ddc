"""Methods that are not built: small trainings that say what each would bring."""
