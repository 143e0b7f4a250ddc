"""The worker's side of the wire protocol, compiled: the same frames, counts and times as `protocol/engine.py`."""
