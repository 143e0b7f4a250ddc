"""The typed form of a v1model program, between the JSON and the compiler.

| file | what |
| --- | --- |
| `places.py` | headers, stacks, unions, and references to them and their fields |
| `data.py`, `expressions.py`, `build.py`, `intervals.py` | integers and conditions, how they are made, what they hold |
| `externs.py` | counters, registers, meters, hashes |
| `statements.py` | what actions and parser states do |
| `program.py` | tables, actions, graphs of controls and parser, digests: the whole program |
| `flow.py` | algorithms on the graphs |
| `features.py` | questions about a program |

Nothing here knows JSON or Python source. Numbers are ints, operators are enums, references are objects; the only
strings are names, which a back-end hands to the control plane and never writes into code.
"""
