"""The job service: the members, slots and epoch of each job."""
