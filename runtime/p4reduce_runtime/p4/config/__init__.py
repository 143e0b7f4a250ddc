"""Configuration messages of P4Runtime."""
