"""The registry: jobs, their members, slots and grants, as a state machine without I/O."""
