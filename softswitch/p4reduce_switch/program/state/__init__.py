"""The state that P4Runtime reads and writes, in arrays that machine code uses: tables, counters, registers and more."""
