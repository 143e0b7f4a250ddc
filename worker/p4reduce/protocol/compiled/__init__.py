"""The worker's side of the wire protocol, compiled: the same frames, counts and times as `protocol/engine.py`.

It can be used without I/O, as that one, or be given a socket (`channel.py`), which its loop then serves (`pump.py`).
"""
