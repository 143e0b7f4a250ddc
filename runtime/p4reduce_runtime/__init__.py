"""What p4reduce's programs all use, and need not agree on: logs, settings, TLS, metrics, kernels, UDP sockets."""

import os

# Before gRPC is imported, which reads it then. gRPC's handlers of fork() can hang a child while another thread is in a
# call, and do not let it use gRPC either.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
