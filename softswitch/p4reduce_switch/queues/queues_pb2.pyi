from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Queues(_message.Message):
    __slots__ = ("port", "priority")
    PORT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    port: int
    priority: int
    def __init__(self, port: _Optional[int] = ..., priority: _Optional[int] = ...) -> None: ...

class SetRateRequest(_message.Message):
    __slots__ = ("queues", "packets_per_second")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    PACKETS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    queues: Queues
    packets_per_second: int
    def __init__(self, queues: _Optional[_Union[Queues, _Mapping]] = ..., packets_per_second: _Optional[int] = ...) -> None: ...

class SetRateReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetDepthRequest(_message.Message):
    __slots__ = ("queues", "packets")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    queues: Queues
    packets: int
    def __init__(self, queues: _Optional[_Union[Queues, _Mapping]] = ..., packets: _Optional[int] = ...) -> None: ...

class SetDepthReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
