"""P4Runtime: what a controller and a switch say to each other, by name."""
