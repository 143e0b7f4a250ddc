"""The mean over a ring of hosts, in a codec that no switch can sum: `schedule` without I/O, `process_group` with it."""
