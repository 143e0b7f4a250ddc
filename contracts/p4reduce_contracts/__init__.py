"""What p4reduce's programs agree on: the wire, the job service, P4Runtime, and where compiled pipelines are."""

import p4reduce_runtime  # noqa: F401 (before gRPC is imported)
