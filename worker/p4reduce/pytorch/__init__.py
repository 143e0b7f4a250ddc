"""The way into PyTorch: a communication hook for DistributedDataParallel."""
