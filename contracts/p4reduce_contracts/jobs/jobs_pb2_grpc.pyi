# Written by hand: the gRPC compiler makes no type stubs.
from typing import Any

class JobsStub:
    def __init__(self, channel: Any) -> None: ...
    CreateJob: Any
    ListJobs: Any
    GetJob: Any
    RemoveJob: Any
    Join: Any
    WaitLease: Any
    Heartbeat: Any
    Watch: Any
    Leave: Any
    Stats: Any
    ListSwitches: Any

def add_JobsServicer_to_server(servicer: object, server: Any) -> None: ...
