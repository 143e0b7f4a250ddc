"""What P4Runtime reads and writes, in arrays that the compiled program works on: tables, counters, registers, ..."""
