"""Benchmarks of switches, each run with `python -m p4reduce_lab.bench.NAME`."""
