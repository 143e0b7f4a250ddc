"""The embedded P4 target: executes a compiled v1model program and serves P4Runtime, as BMv2 does."""

import p4reduce_runtime  # noqa: F401 (before gRPC is imported)
