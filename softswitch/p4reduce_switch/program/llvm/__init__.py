"""The IR as machine code, made by LLVM when the program is loaded.

| I want to see … | file |
| --- | --- |
| the program that runs frames | `../program.py`, `batch_runner.py`, `stages_runner.py` |
| the functions that they call | `batch_code.py`, `stages_code.py` |
| what a statement becomes | `statements.py`, `actions.py` |
| how an expression is computed | `expressions.py`, `extent.py`, `numbers.py`, `helpers.py` |
| parser and deparser | `parser.py`, `deparser.py` |
| tables and conditions | `control.py`, `lookup.py`, `../state/indexes.py` |
| parser value sets | `value_sets.py` |
| checksums and hashes | `checksums.py` |
| where a packet's fields live | `../layout.py`, `packet_state.py`, `references.py` |
| what Python and machine code share | `shared.py`, `../memory.py`, `../state/`, `handover.py` |
| how machine code reaches it | `world.py`, `failures.py` |
| LLVM, and the cache of object files | `emitter.py`, `parts.py`, `target.py`, `build.py` |
"""
