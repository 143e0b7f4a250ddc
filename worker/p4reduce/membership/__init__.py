"""A rank's membership of a job: joining, heartbeats, resets, the end."""
