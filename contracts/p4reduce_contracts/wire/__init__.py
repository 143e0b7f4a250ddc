"""The wire: what a worker and the switch say to each other, and what of it the controller reads."""
