"""The benchmark: `p4reduce bench`."""
