"""What p4reduce's programs all use, and need not agree on: logs, settings, TLS, metrics, kernels, UDP sockets."""
