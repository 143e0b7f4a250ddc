"""What p4reduce's programs agree on: the wire, the job service, P4Runtime, and where compiled pipelines are."""
