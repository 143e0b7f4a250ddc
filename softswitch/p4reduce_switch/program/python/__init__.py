"""The Python executor: the IR as Python source, compiled when the program is loaded.

| I want to see … | file |
| --- | --- |
| the program that runs frames | `program.py` |
| what a statement becomes | `statements.py`, `actions.py` |
| how an expression is computed | `expressions.py`, `checks.py` |
| the parser | `parser.py`, `extraction.py`, `units.py` |
| tables and conditions | `control.py` |
| checksums | `checksums.py` |
| how it all is put together | `module.py`, `source.py` |
"""

from p4reduce_switch.program.python.program import Program

__all__ = ["Program"]
