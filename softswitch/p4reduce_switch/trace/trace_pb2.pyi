from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRequest(_message.Message):
    __slots__ = ("port", "where", "packets")
    PORT_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    port: int
    where: _containers.RepeatedCompositeFieldContainer[Bytes]
    packets: int
    def __init__(self, port: _Optional[int] = ..., where: _Optional[_Iterable[_Union[Bytes, _Mapping]]] = ..., packets: _Optional[int] = ...) -> None: ...

class Bytes(_message.Message):
    __slots__ = ("offset", "value", "mask")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    offset: int
    value: bytes
    mask: bytes
    def __init__(self, offset: _Optional[int] = ..., value: _Optional[bytes] = ..., mask: _Optional[bytes] = ...) -> None: ...

class WatchReply(_message.Message):
    __slots__ = ("trace", "lost")
    TRACE_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    trace: bytes
    lost: int
    def __init__(self, trace: _Optional[bytes] = ..., lost: _Optional[int] = ...) -> None: ...

class PacketTrace(_message.Message):
    __slots__ = ("input", "root")
    INPUT_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    input: InputPacket
    root: TraceTree
    def __init__(self, input: _Optional[_Union[InputPacket, _Mapping]] = ..., root: _Optional[_Union[TraceTree, _Mapping]] = ...) -> None: ...

class InputPacket(_message.Message):
    __slots__ = ("packet_id", "ingress_port")
    PACKET_ID_FIELD_NUMBER: _ClassVar[int]
    INGRESS_PORT_FIELD_NUMBER: _ClassVar[int]
    packet_id: int
    ingress_port: int
    def __init__(self, packet_id: _Optional[int] = ..., ingress_port: _Optional[int] = ...) -> None: ...

class TraceTree(_message.Message):
    __slots__ = ("events", "transmit", "drop")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    TRANSMIT_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[TraceEvent]
    transmit: Transmit
    drop: Drop
    def __init__(self, events: _Optional[_Iterable[_Union[TraceEvent, _Mapping]]] = ..., transmit: _Optional[_Union[Transmit, _Mapping]] = ..., drop: _Optional[_Union[Drop, _Mapping]] = ...) -> None: ...

class TraceEvent(_message.Message):
    __slots__ = ("pipeline_stage",)
    PIPELINE_STAGE_FIELD_NUMBER: _ClassVar[int]
    pipeline_stage: PipelineStageEvent
    def __init__(self, pipeline_stage: _Optional[_Union[PipelineStageEvent, _Mapping]] = ...) -> None: ...

class PipelineStageEvent(_message.Message):
    __slots__ = ("stage_name", "stage_kind", "direction")
    class StageKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STAGE_KIND_UNSPECIFIED: _ClassVar[PipelineStageEvent.StageKind]
        PARSER: _ClassVar[PipelineStageEvent.StageKind]
        CONTROL: _ClassVar[PipelineStageEvent.StageKind]
        DEPARSER: _ClassVar[PipelineStageEvent.StageKind]
    STAGE_KIND_UNSPECIFIED: PipelineStageEvent.StageKind
    PARSER: PipelineStageEvent.StageKind
    CONTROL: PipelineStageEvent.StageKind
    DEPARSER: PipelineStageEvent.StageKind
    class Direction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DIRECTION_UNSPECIFIED: _ClassVar[PipelineStageEvent.Direction]
        ENTER: _ClassVar[PipelineStageEvent.Direction]
        EXIT: _ClassVar[PipelineStageEvent.Direction]
    DIRECTION_UNSPECIFIED: PipelineStageEvent.Direction
    ENTER: PipelineStageEvent.Direction
    EXIT: PipelineStageEvent.Direction
    STAGE_NAME_FIELD_NUMBER: _ClassVar[int]
    STAGE_KIND_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    stage_name: str
    stage_kind: PipelineStageEvent.StageKind
    direction: PipelineStageEvent.Direction
    def __init__(self, stage_name: _Optional[str] = ..., stage_kind: _Optional[_Union[PipelineStageEvent.StageKind, str]] = ..., direction: _Optional[_Union[PipelineStageEvent.Direction, str]] = ...) -> None: ...

class Transmit(_message.Message):
    __slots__ = ("egress_port", "packet_size")
    EGRESS_PORT_FIELD_NUMBER: _ClassVar[int]
    PACKET_SIZE_FIELD_NUMBER: _ClassVar[int]
    egress_port: int
    packet_size: int
    def __init__(self, egress_port: _Optional[int] = ..., packet_size: _Optional[int] = ...) -> None: ...

class Drop(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
