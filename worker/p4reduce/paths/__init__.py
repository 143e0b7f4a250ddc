"""How a contribution is summed: over the switch (switch.py), or over the hosts of the ranks (hosts/)."""
