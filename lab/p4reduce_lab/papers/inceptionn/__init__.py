"""The mean over a ring of hosts, in numbers that no switch can sum: codec.py; ring.py has the schedule, without I/O."""
