"""`python -m p4reduce_contracts`: the `p4reduce` command, for programs that start others by this interpreter."""

from __future__ import annotations

from p4reduce_contracts.cli import main

main()
