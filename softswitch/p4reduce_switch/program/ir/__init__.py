"""The intermediate representation (IR) of a v1model program, between the JSON and the compiler.

| file | what |
| --- | --- |
| `places.py` | headers, stacks, unions, and references to them and their fields |
| `expressions.py`, `build.py`, `intervals.py` | integer expressions, conditions, builders, intervals |
| `externs.py` | counters, registers, meters, hashes |
| `statements.py` | instructions of actions, operations of parser states |
| `program.py` | tables, actions, control and parser graphs, digests: the whole program |
| `flow.py` | graph algorithms |
| `features.py` | analyses of a whole program |

The IR contains neither JSON nor source code. Numbers are ints, operators are enums, references are objects; the only
strings are names, for the control plane and for messages, which never become part of emitted code.
"""
