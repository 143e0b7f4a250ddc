# Written by hand: the gRPC compiler makes no type stubs.
from typing import Any

class EgressQueuesStub:
    def __init__(self, channel: Any) -> None: ...
    SetRate: Any
    SetDepth: Any

def add_EgressQueuesServicer_to_server(servicer: object, server: Any) -> None: ...
