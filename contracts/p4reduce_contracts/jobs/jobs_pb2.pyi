from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    FORMING: _ClassVar[JobState]
    ACTIVE: _ClassVar[JobState]
    ENDED: _ClassVar[JobState]
JOB_STATE_UNSPECIFIED: JobState
FORMING: JobState
ACTIVE: JobState
ENDED: JobState

class Usage(_message.Message):
    __slots__ = ("collectives", "bytes_up", "bytes_down", "retransmissions")
    COLLECTIVES_FIELD_NUMBER: _ClassVar[int]
    BYTES_UP_FIELD_NUMBER: _ClassVar[int]
    BYTES_DOWN_FIELD_NUMBER: _ClassVar[int]
    RETRANSMISSIONS_FIELD_NUMBER: _ClassVar[int]
    collectives: int
    bytes_up: int
    bytes_down: int
    retransmissions: int
    def __init__(self, collectives: _Optional[int] = ..., bytes_up: _Optional[int] = ..., bytes_down: _Optional[int] = ..., retransmissions: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("rank", "silent_s", "slot_wait", "addresses")
    RANK_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    SLOT_WAIT_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    rank: int
    silent_s: float
    slot_wait: WaitingSlot
    addresses: _containers.RepeatedCompositeFieldContainer[MemberAddress]
    def __init__(self, rank: _Optional[int] = ..., silent_s: _Optional[float] = ..., slot_wait: _Optional[_Union[WaitingSlot, _Mapping]] = ..., addresses: _Optional[_Iterable[_Union[MemberAddress, _Mapping]]] = ...) -> None: ...

class MemberAddress(_message.Message):
    __slots__ = ("switch", "host", "port", "ingress_port", "mac")
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    INGRESS_PORT_FIELD_NUMBER: _ClassVar[int]
    MAC_FIELD_NUMBER: _ClassVar[int]
    switch: str
    host: str
    port: int
    ingress_port: int
    mac: str
    def __init__(self, switch: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., ingress_port: _Optional[int] = ..., mac: _Optional[str] = ...) -> None: ...

class WaitingSlot(_message.Message):
    __slots__ = ("slot", "round", "missing", "waited_s", "in_flight", "level")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    slot: int
    round: int
    missing: int
    waited_s: float
    in_flight: int
    level: int
    def __init__(self, slot: _Optional[int] = ..., round: _Optional[int] = ..., missing: _Optional[int] = ..., waited_s: _Optional[float] = ..., in_flight: _Optional[int] = ..., level: _Optional[int] = ...) -> None: ...

class Level(_message.Message):
    __slots__ = ("switch", "children", "parent")
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    switch: str
    children: _containers.RepeatedCompositeFieldContainer[Child]
    parent: str
    def __init__(self, switch: _Optional[str] = ..., children: _Optional[_Iterable[_Union[Child, _Mapping]]] = ..., parent: _Optional[str] = ...) -> None: ...

class Child(_message.Message):
    __slots__ = ("ranks",)
    RANKS_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("name", "id", "world_size", "first_slot", "slots", "state", "epoch", "members", "last_reset", "run_id", "private", "owner_token", "member_token", "hidden", "ephemeral", "tree", "usage", "hosts", "resets", "part_of", "shards", "created", "ended", "switches", "missing")
    class ResetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LAST_RESET_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_FIELD_NUMBER: _ClassVar[int]
    OWNER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MEMBER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    RESETS_FIELD_NUMBER: _ClassVar[int]
    PART_OF_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    world_size: int
    first_slot: int
    slots: int
    state: JobState
    epoch: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    last_reset: str
    run_id: str
    private: bool
    owner_token: str
    member_token: str
    hidden: bool
    ephemeral: bool
    tree: _containers.RepeatedCompositeFieldContainer[Level]
    usage: Usage
    hosts: _containers.RepeatedScalarFieldContainer[str]
    resets: _containers.ScalarMap[str, int]
    part_of: str
    shards: _containers.RepeatedCompositeFieldContainer[Job]
    created: float
    ended: float
    switches: int
    missing: str
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ..., world_size: _Optional[int] = ..., first_slot: _Optional[int] = ..., slots: _Optional[int] = ..., state: _Optional[_Union[JobState, str]] = ..., epoch: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., last_reset: _Optional[str] = ..., run_id: _Optional[str] = ..., private: bool = ..., owner_token: _Optional[str] = ..., member_token: _Optional[str] = ..., hidden: bool = ..., ephemeral: bool = ..., tree: _Optional[_Iterable[_Union[Level, _Mapping]]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., hosts: _Optional[_Iterable[str]] = ..., resets: _Optional[_Mapping[str, int]] = ..., part_of: _Optional[str] = ..., shards: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., created: _Optional[float] = ..., ended: _Optional[float] = ..., switches: _Optional[int] = ..., missing: _Optional[str] = ...) -> None: ...

class CreateJobRequest(_message.Message):
    __slots__ = ("name", "world_size", "slots", "private", "ephemeral", "part_of", "switches", "single_epoch")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    PART_OF_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    SINGLE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    name: str
    world_size: int
    slots: int
    private: bool
    ephemeral: bool
    part_of: str
    switches: int
    single_epoch: bool
    def __init__(self, name: _Optional[str] = ..., world_size: _Optional[int] = ..., slots: _Optional[int] = ..., private: bool = ..., ephemeral: bool = ..., part_of: _Optional[str] = ..., switches: _Optional[int] = ..., single_epoch: bool = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("ended",)
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ended: bool
    def __init__(self, ended: bool = ...) -> None: ...

class ListJobsReply(_message.Message):
    __slots__ = ("jobs", "slots", "free_slots")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    slots: int
    free_slots: int
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., slots: _Optional[int] = ..., free_slots: _Optional[int] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("name", "token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    token: str
    def __init__(self, name: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class RemoveJobRequest(_message.Message):
    __slots__ = ("name", "token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    token: str
    def __init__(self, name: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class RemoveJobReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("job", "rank", "world_size", "run_id", "token", "former", "switch", "host")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    world_size: int
    run_id: str
    token: str
    former: int
    switch: str
    host: str
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., run_id: _Optional[str] = ..., token: _Optional[str] = ..., former: _Optional[int] = ..., switch: _Optional[str] = ..., host: _Optional[str] = ...) -> None: ...

class JoinTicket(_message.Message):
    __slots__ = ("nonce", "job_id", "columns", "block_words", "hello_interval_s", "switches")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_WORDS_FIELD_NUMBER: _ClassVar[int]
    HELLO_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    job_id: int
    columns: int
    block_words: int
    hello_interval_s: float
    switches: _containers.RepeatedCompositeFieldContainer[SwitchAddress]
    def __init__(self, nonce: _Optional[int] = ..., job_id: _Optional[int] = ..., columns: _Optional[int] = ..., block_words: _Optional[int] = ..., hello_interval_s: _Optional[float] = ..., switches: _Optional[_Iterable[_Union[SwitchAddress, _Mapping]]] = ...) -> None: ...

class SwitchAddress(_message.Message):
    __slots__ = ("name", "host", "port")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class WaitLeaseRequest(_message.Message):
    __slots__ = ("nonce", "timeout_s")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    timeout_s: float
    def __init__(self, nonce: _Optional[int] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("job_id", "name", "epoch", "rank", "world_size", "slot_count", "columns", "block_words", "heartbeat_interval_s", "private", "first_round", "switches")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    SLOT_COUNT_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_WORDS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROUND_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    name: str
    epoch: int
    rank: int
    world_size: int
    slot_count: int
    columns: int
    block_words: int
    heartbeat_interval_s: float
    private: bool
    first_round: int
    switches: _containers.RepeatedCompositeFieldContainer[LeasedSwitch]
    def __init__(self, job_id: _Optional[int] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., slot_count: _Optional[int] = ..., columns: _Optional[int] = ..., block_words: _Optional[int] = ..., heartbeat_interval_s: _Optional[float] = ..., private: bool = ..., first_round: _Optional[int] = ..., switches: _Optional[_Iterable[_Union[LeasedSwitch, _Mapping]]] = ...) -> None: ...

class LeasedSwitch(_message.Message):
    __slots__ = ("host", "port", "secret", "levels")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    secret: int
    levels: _containers.RepeatedCompositeFieldContainer[Level]
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ..., secret: _Optional[int] = ..., levels: _Optional[_Iterable[_Union[Level, _Mapping]]] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("nonce", "slot_wait", "usage")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SLOT_WAIT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    slot_wait: WaitingSlot
    usage: Usage
    def __init__(self, nonce: _Optional[int] = ..., slot_wait: _Optional[_Union[WaitingSlot, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("reset", "reason")
    RESET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    reset: bool
    reason: str
    def __init__(self, reset: bool = ..., reason: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ("reset", "reason")
    RESET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    reset: bool
    reason: str
    def __init__(self, reset: bool = ..., reason: _Optional[str] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("nonce", "usage", "finished")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    usage: Usage
    finished: bool
    def __init__(self, nonce: _Optional[int] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., finished: bool = ...) -> None: ...

class LeaveReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class Count(_message.Message):
    __slots__ = ("packets", "bytes")
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    packets: int
    bytes: int
    def __init__(self, packets: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class JobStats(_message.Message):
    __slots__ = ("name", "id", "contributions", "duplicates", "results", "pendings", "switch", "parent_answers", "part_of", "hosts")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    PENDINGS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    PARENT_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    PART_OF_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    contributions: Count
    duplicates: Count
    results: Count
    pendings: Count
    switch: str
    parent_answers: Count
    part_of: str
    hosts: int
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ..., contributions: _Optional[_Union[Count, _Mapping]] = ..., duplicates: _Optional[_Union[Count, _Mapping]] = ..., results: _Optional[_Union[Count, _Mapping]] = ..., pendings: _Optional[_Union[Count, _Mapping]] = ..., switch: _Optional[str] = ..., parent_answers: _Optional[_Union[Count, _Mapping]] = ..., part_of: _Optional[str] = ..., hosts: _Optional[int] = ...) -> None: ...

class DropStats(_message.Message):
    __slots__ = ("reason", "count", "switch")
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    reason: str
    count: Count
    switch: str
    def __init__(self, reason: _Optional[str] = ..., count: _Optional[_Union[Count, _Mapping]] = ..., switch: _Optional[str] = ...) -> None: ...

class AwaySwitch(_message.Message):
    __slots__ = ("switch", "problem")
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    switch: str
    problem: str
    def __init__(self, switch: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class StatsReply(_message.Message):
    __slots__ = ("jobs", "drops", "away")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    DROPS_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStats]
    drops: _containers.RepeatedCompositeFieldContainer[DropStats]
    away: _containers.RepeatedCompositeFieldContainer[AwaySwitch]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobStats, _Mapping]]] = ..., drops: _Optional[_Iterable[_Union[DropStats, _Mapping]]] = ..., away: _Optional[_Iterable[_Union[AwaySwitch, _Mapping]]] = ...) -> None: ...

class ListSwitchesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Switch(_message.Message):
    __slots__ = ("name", "p4runtime", "host", "port", "problem", "parent", "uplink_port", "parent_port", "link_problem", "ranks", "jobs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    P4RUNTIME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    UPLINK_PORT_FIELD_NUMBER: _ClassVar[int]
    PARENT_PORT_FIELD_NUMBER: _ClassVar[int]
    LINK_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    name: str
    p4runtime: str
    host: str
    port: int
    problem: str
    parent: str
    uplink_port: int
    parent_port: int
    link_problem: str
    ranks: int
    jobs: int
    def __init__(self, name: _Optional[str] = ..., p4runtime: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., problem: _Optional[str] = ..., parent: _Optional[str] = ..., uplink_port: _Optional[int] = ..., parent_port: _Optional[int] = ..., link_problem: _Optional[str] = ..., ranks: _Optional[int] = ..., jobs: _Optional[int] = ...) -> None: ...

class ListSwitchesReply(_message.Message):
    __slots__ = ("switches",)
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.RepeatedCompositeFieldContainer[Switch]
    def __init__(self, switches: _Optional[_Iterable[_Union[Switch, _Mapping]]] = ...) -> None: ...
