"""Collectives of many ranks in virtual time, over racks that are simulated."""
