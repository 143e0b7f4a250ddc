"""The worker's side of the wire protocol, without I/O."""
