"""Ranks behind one link add their data in shared memory, so that each block leaves a host once (docs/hosts.md)."""
