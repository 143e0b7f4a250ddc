"""What starts several programs at once: the demo, the study, the benchmarks."""
