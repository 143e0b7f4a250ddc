"""What P4Runtime reads and writes, as the Python executor keeps it: tables, counters, registers, meters, replication.

`../executor.py` has the interfaces. Other executors may keep their state elsewhere.
"""
