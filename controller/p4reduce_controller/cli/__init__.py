"""The commands `p4reduce controller`, `job` and `stats`."""
