"""The control plane of p4reduce: P4Runtime client, job service and the `p4reduce` command."""

import p4reduce_runtime  # noqa: F401 (before gRPC is imported)
