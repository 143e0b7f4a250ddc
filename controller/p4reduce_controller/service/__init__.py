"""The process: the job service over gRPC, its state on disk, its metrics."""
