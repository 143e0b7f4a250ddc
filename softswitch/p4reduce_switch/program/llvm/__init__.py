"""Compiles the IR to machine code with LLVM when a program is loaded.

| part | file |
| --- | --- |
| running frames | `../program.py`, `batch_runner.py`, `stages_runner.py` |
| the compiled functions | `batch_code.py`, `stages_code.py` |
| statements and actions | `statements.py` |
| expressions | `expressions.py`, `numbers.py`, `helpers.py` |
| parser and deparser | `parser.py`, `deparser.py` |
| tables and conditions | `control.py`, `lookup.py`, `../state/rows.py` |
| checksums and hashes | `checksums.py` |
| fields of a packet | `../layout.py`, `packet_state.py`, `references.py` |
| state shared by Python and machine code | `host_state.py`, `../memory.py`, `../state/`, `host_abi.py` |
| access to it from machine code | `codegen_context.py`, `host_abi.py` |
| LLVM and the cache of object files | `emitter.py`, `emitters.py`, `target.py`, `build.py` |
"""
