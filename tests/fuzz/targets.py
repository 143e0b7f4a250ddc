"""Every decoder of the project as a fuzz target: bytes in, and nothing but its documented error out.

A target has seeds, made by the project's own encoders, and words that its language is made of. `run` returns whether
the input was taken; it raises whatever the decoder lets through beyond what it documents, or AssertionError where what
it returned is not what the input says.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
from google.protobuf.message import DecodeError

from conformance.case import PROGRAMS
from conformance.corpus import GROUPS
from p4reduce.codecs import coordinates
from p4reduce.errors import FrameError, GeometryMismatchError, InvalidTensorError
from p4reduce.protocol import call, opening
from p4reduce_contracts import artifacts
from p4reduce_contracts.jobs import jobs_pb2
from p4reduce_contracts.jobs.answers import Count
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import JobServiceError
from p4reduce_controller import config
from p4reduce_controller.registry.hello import Address, parse_hello
from p4reduce_controller.registry.job import Child, Grant, Job, Member
from p4reduce_controller.registry.slots import SlotRange
from p4reduce_controller.service import saved
from p4reduce_runtime import pipeline_folders
from p4reduce_runtime.p4.config.v1 import p4info_pb2 as p4i
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import bytestrings, codec
from p4reduce_runtime.p4runtime.entries import (
    CounterEntry,
    DigestConfig,
    MeterConfig,
    MeterEntry,
    MulticastGroup,
    TableEntry,
)
from p4reduce_runtime.p4runtime.errors import SchemaError
from p4reduce_runtime.p4runtime.schema import Schema, parse_p4info
from p4reduce_runtime.settings import ConfigError
from p4reduce_switch.p4runtime import RequestError
from p4reduce_switch.p4runtime import pipeline as pipelines
from p4reduce_switch.p4runtime.status import Code
from p4reduce_switch.program import Program, ProgramError
from p4reduce_testbed import topology
from rigs import entity_text, p4rt, wire
from rigs.pipeline import PipelineRig, rank_port, udp_frame, with_secret
from rigs.secret import rank_secret

ROOT = Path(__file__).resolve().parents[2]
PORTS = (*(rank_port(rank) for rank in range(2)), 40)


@dataclass(frozen=True)
class Target:
    seeds: Callable[[], list[bytes]]
    decode: Callable[[bytes], object]
    """Returns False, or raises one of `errors`, where it does not take the input."""
    words: tuple[bytes, ...] = ()
    errors: tuple[type[Exception], ...] = ()

    def run(self, data: bytes) -> bool:
        try:
            return self.decode(data) is not False
        except self.errors:
            return False


@cache
def rig() -> PipelineRig:
    """One program for all inputs: whatever they leave in its registers, the next must be processed too."""
    return PipelineRig("small", 2)


# ---- frames


def _contributions() -> list[bytes]:
    """A good round of two ranks with two blocks, and duplicates of it, as UDP payloads with their secrets."""
    found = []
    for rank in range(2):
        for blocks in ({}, {0: bytes(range(32)), 3: b"\xff" * 32}):
            payload = rig().contribution(0, len(blocks), (1, wire.KEY_NONE, 0, 5 + rank), blocks)
            found.append(with_secret(payload, rank_secret(rank)))
    return found


def _frame(payload: bytes) -> bool:
    taken = False
    for geometry in (wire.SMALL, wire.DEFAULT):
        try:
            frame = wire.unpack(geometry, payload)
        except FrameError:
            continue
        assert wire.pack(geometry, frame) == payload
        taken = True
    return taken


def _hello(payload: bytes) -> None:
    assert wire.pack_hello(*wire.unpack_hello(payload)) == payload


def _hello_frame(frame: bytes) -> bool:
    hello = parse_hello(3, frame)
    return hello is not None and bool(hello.address.host and hello.address.mac_text)


def _pipeline_frame(data: bytes) -> bool:
    """The first byte chooses the port, the rest is the frame."""
    if not data:
        return False
    for port, frame in rig().program.process(PORTS[data[0] % len(PORTS)], data[1:]):
        assert 0 <= port < 512 and isinstance(frame, bytes)
    return True


def _pipeline_frames() -> list[bytes]:
    payloads = [*_contributions(), wire.pack_hello(7, 9)]
    return [b"\0" + udp_frame(index // 2 % 2, payload) for index, payload in enumerate(payloads)]


def _call(data: bytes) -> bool:
    size = len(data) // 16
    for words in opening.read_opening(data, size):
        assert call.describe(words)
        assert 0 <= call.proposed_window(words) <= 0xFFFF
    return size > 0


def _calls() -> list[bytes]:
    kinds = [call.Call(index, kind, call.CodecId(index % 6), 1, 1000) for index, kind in enumerate(call.Kind)]
    return [np.array([each.words(7) for each in kinds], ">u4").tobytes()]


def _coordinates(data: bytes) -> None:
    """The first two bytes are the tensor's elements; two ranks share the rest."""
    elements = int.from_bytes(data[:2], "big")
    rows = np.frombuffer(data[2:] + bytes(len(data[2:]) % 2), np.uint8).reshape(2, -1)
    parts = [coordinates.Part(elements, sender) for sender in (None, 0, 1, None)]
    received = coordinates.GatheredCoordinates(parts, [np.zeros(0, np.uint8)], 0).finish(rows)
    for part, found in zip(parts, received, strict=True):
        assert len(found.ends) == (2 if part.sender is None else 1)
        assert len(found.indices) == len(found.signs) == found.ends[-1]
        for own in np.split(found.indices, found.ends[:-1]):
            assert (np.diff(own) > 0).all()
            assert ((own >= 0) & (own < elements)).all()
        assert found.mean.shape == (elements,)


def _some_coordinates() -> list[bytes]:
    found = []
    for step in (1, 38, 130, 700, 2100):
        indices = np.arange(0, 5000, step, dtype=np.int64)
        signs, ends = np.where(indices % 2, 1, -1).astype(np.int8), np.array([len(indices)])
        made = coordinates.Coordinates(indices, signs, ends, np.array([0.5], np.float32))
        row = 4 * coordinates.encode(made)[0].tobytes()  # as many tensors, of which a rank may send fewer
        found.append((5000).to_bytes(2, "big") + 2 * row)
    return found


# ---- job service


def _lease(data: bytes) -> None:
    client = Mock(**{"_call.return_value": jobs_pb2.Lease.FromString(data)})
    lease = JobClient.wait_lease(client, 1, 1.0)
    for switch in lease.switches:
        assert lease.full.bit_length() == len(switch.levels[-1].children)
        assert len(switch.levels[-1].ranks) == lease.world_size <= lease.geometry.max_world_size
    assert "secret" not in repr(lease)


def _leases() -> list[bytes]:
    fields = {"job_id": 7, "name": "a", "epoch": 3, "rank": 1, "world_size": 2, "slot_count": 64, "columns": 4}
    fields |= {"block_words": 8, "heartbeat_interval_s": 2.0}
    leaf = jobs_pb2.Level(switch="leaf", children=[jobs_pb2.Child(ranks=[1])], parent="root")
    root = jobs_pb2.Level(switch="root", children=[jobs_pb2.Child(ranks=[0]), jobs_pb2.Child(ranks=[1])])
    return [
        jobs_pb2.Lease(
            **fields,
            first_round=1 << 31,
            switches=[
                jobs_pb2.LeasedSwitch(host="10.0.0.254", port=21072 + number, secret=1 << 63, levels=levels)
                for number in range(switches)
            ],
        ).SerializeToString()
        for levels, switches in (([], 1), ([leaf, root], 1), ([], 2))
    ]


def _saved_job(data: bytes) -> bool:
    try:
        job = saved.from_text(data.decode("utf-8", "surrogateescape"))
    except ValueError:
        return False
    assert saved.from_text(saved.to_text(job)).members == job.members
    return job.state in ("FORMING", "ACTIVE") and job.missing() is not None


def _saved_jobs() -> list[bytes]:
    address = Address(1, 0x020000000001, 0x0A000001, 4000)
    at = {"switch": address}
    members = {0: Member(0, 1 << 63, 1.0, "run", at), 1: Member(1, 5, 1.0, "run", at)}
    plain = Job("plain", 1, 2, SlotRange(0, 4), members=members)
    children = (Child(address, 1 << 63, (0,)), Child(address, 2, (1,)))
    grant = Grant(2, "train", 9, SlotRange(4, 4), children)
    active = Job("train", 2, 2, SlotRange(4, 4), members, {grant.switch: grant}, True)
    active.last_reset, active.counted_from = "rank 1 left", {"switch": {"results": Count(1, 2)}}
    beside = replace(active, grants={name: replace(grant, switch=name) for name in ("a", "b")})
    beside.members = {rank: Member(rank, 5 + rank, 1.0, "run", {"a": address, "b": address}) for rank in (0, 1)}
    return [saved.to_text(job).encode() for job in (plain, active, beside)]


# ---- P4Runtime


def _entity(data: bytes) -> None:
    codec.decode(p4rt.SCHEMA, p4r.Entity.FromString(data))


def _entities() -> list[bytes]:
    table, key = "SampleIngress.exact_table", {"h.sample.id": 5, "s.ingress_port": 511}
    entries = [
        TableEntry(table, key, "SampleIngress.forward", {"port": 1}),
        MeterEntry("SampleIngress.pace", 1, MeterConfig(1, 2, 3, 4)),
        TableEntry("SampleIngress.prefix_table", {"h.sample.address": (0x0A000000, 8)}, "SampleIngress.drop"),
        MulticastGroup(1, ((1, 0), (2, 5))),
        DigestConfig("sighting_t", 1, 2, 3),
    ]
    return [codec.encode(p4rt.SCHEMA, entry).SerializeToString() for entry in entries]


@cache
def _written_to() -> tuple[pipelines.Pipeline, Schema]:
    """One program with each kind of entity for all inputs: whatever they leave in it, the next must be dealt with."""
    stem = ROOT / "softswitch/tests/interop/every_entity"
    p4info = parse_p4info(stem.with_suffix(".p4info.txtpb").read_text())
    changed = threading.Condition()
    changed.acquire()  # as the switch's lock is
    config = p4rt.config(stem.with_suffix(".json").read_bytes(), p4info=p4info)
    return pipelines.load(config, lambda _: True, changed), Schema.from_p4info(p4info)


def _updates(data: bytes) -> bool:
    """Write and read as a controller does: the switch refuses it for a reason, or does it."""
    pipeline, _ = _written_to()
    taken = False
    for update in p4r.WriteRequest.FromString(data).updates:
        refused = pipeline.write(update)
        assert refused is None or refused.code is not Code.INTERNAL, refused
        taken |= refused is None
        with contextlib.suppress(RequestError):
            for _ in pipeline.read(update.entity):
                pass
    pipeline.program.process(1, bytes((3, 7, *data[:3].ljust(3))))
    pipeline.idle_timeouts.tick()
    return taken


def _some_updates() -> list[bytes]:
    _, schema = _written_to()
    plain, by_group, one_shot, aging = (f"MainIngress.{name}" for name in ("plain", "by_group", "one_shot", "aging"))
    key, send, paths = {"h.sample.key": 7}, "MainIngress.send", "MainIngress.paths"
    batches = (
        [TableEntry(plain, key, send, {"port": 1}), CounterEntry("MainIngress.seen", 1, 2, 3)],
        [entity_text.member(paths, id, (send, id)) for id in (1, 2)],
        [
            entity_text.group(paths, 3, ((1, 2, 0), (2, 1, 4)), 8),
            entity_text.entry(by_group, entity_text.exact(7), entity_text.to_group(3)),
        ],
        [entity_text.entry(one_shot, entity_text.exact(7), entity_text.action_set(((send, 1), 2, 4)))],
        [entity_text.entry(aging, entity_text.ternary(7, 15), entity_text.action(send, 1), "idle_timeout_ns: 5")],
        [
            'register_entry { register_id: @MainIngress.memory index { index: 2 } data { bitstring: "\\t" } }',
            f"value_set_entry {{ value_set_id: @Sample.kinds members {{ {entity_text.exact(3)} }} }}",
        ],
        [MeterEntry("MainIngress.pace", 1, MeterConfig(1, 2, 3, 4)), DigestConfig("sighting_t", 1, 2, 3)],
        [MulticastGroup(1, ((1, 0), (2, 5))), entity_text.clone_session(2, (1, 0), packet_length_bytes=64)],
    )
    found = []
    for entries in batches:
        for kind in (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE):
            request = p4r.WriteRequest()
            for entry in entries:
                entity = entity_text.entity(schema, entry) if isinstance(entry, str) else codec.encode(schema, entry)
                request.updates.add(type=kind).entity.CopyFrom(entity)
            found.append(request.SerializeToString())
    return found


def _digest(data: bytes) -> bool:
    digests = p4r.DigestList.FromString(data).data
    return len(digests) > 0 and all(value >= 0 for value in codec.decode_data(digests[0]))


def _digests() -> list[bytes]:
    digests = p4r.DigestList()
    members = digests.data.add().struct.members
    members.add().bitstring = b"\1\2"
    members.add().bool = True
    members.add().tuple.members.add().bitstring = b"\0"
    return [digests.SerializeToString()]


def _byte_string(data: bytes) -> None:
    value = bytestrings.decode(data)
    assert bytestrings.decode(bytestrings.encode(value, 8 * len(data) or 1)) == value


def _p4info_text(data: bytes) -> None:
    Schema.from_p4info(data.decode("utf-8", "surrogateescape"))


def _p4info(data: bytes) -> None:
    Schema.from_p4info(p4i.P4Info.FromString(data))


def _p4info_texts() -> list[bytes]:
    texts = [
        path.read_bytes()
        for path in sorted((ROOT / "softswitch/tests/conformance/programs").glob("*.p4info.txtpb"))[::9]
    ]
    loop = 'new_types { key: "a" value { original_type { new_type { name: "a" } } } }'
    digest = 'digests { preamble { id: 1 name: "d" } type_spec { new_type { name: "a" } } } type_info { %s }'
    return [*texts, (digest % loop).encode()]


def _p4infos() -> list[bytes]:
    return [parse_p4info(text.decode()).SerializeToString() for text in _p4info_texts()]


# ---- files


def _of_file(read: Callable[[Path], Any], name: str) -> Callable[[bytes], None]:
    """A decoder that reads a file of this name."""

    def run(data: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            path = Path(folder, name)
            path.write_bytes(data)
            read(path)

    return run


CONTROLLER = b"""
[switch]
p4runtime = "127.0.0.1:9559"
device_id = 1
election_id = "auto"
address = "10.0.0.254"
mac = "02:00:00:00:00:01"
udp_port = 21072
connect_timeout_s = 10.0
[controller]
listen = "127.0.0.1:9600"
heartbeat_interval_s = 2.0
[quotas]
jobs = 64
[[ports]]
number = 1
mac = "02:00:00:00:01:01"
[forwarding]
learn = true
flood = [1, 2, 3]
"""
TOML_WORDS = (
    *(b"0x" + b"f" * 4000, b"9" * 5000, b"9" * 400, b"-1", b"0", b"1e999", b"nan", b"-inf", b"true", b"[]", b"{}"),
    *(b'""', b"'a'", b"[" * 2000, b"a." * 500 + b"b = 1", b"1979-05-27T07:32:00Z", b"\xff\xfe", b"\n[", b"]\n", b" = "),
)
JSON_WORDS = (
    *(b"9" * 5000, b"9" * 400, b"-1", b"0", b"1e999", b"NaN", b"-Infinity", b"true", b"null", b"[]", b"{}", b'""'),
    *(b"[" * 2000, b'{"a":' * 2000, b"\xff", b'"\\ud800"', b'"s1-p' + b"9" * 5000 + b'"', b",", b":"),
)

P4INFO_WORDS = (b'"a"', b"{", b"}", b"new_type", b"9" * 5000, b"-1")
DEVICE_CONFIG_WORDS = (b"\x08\x01", b"\x12\x00", b"\x1a\x02{}", b"\xff" * 10)


def _topologies() -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "mininet").rglob("*.json"))]


@cache
def _program_folder() -> tuple[bytes, ...]:
    profiles = ("action_profile", "action_run_profile", "action_selector", "selector_hashes")
    names = sorted({"value_set", *profiles, *GROUPS} - {"signed_register_cell"})
    return tuple((PROGRAMS / f"{name}.json").read_bytes() for name in names)


def _pipeline_json(data: bytes) -> None:
    Program(data).process(1, bytes(64))


def _device_config(data: bytes) -> bool:
    try:
        program = pipelines.program_of(data)
    except RequestError as refused:
        assert refused.code is Code.INVALID_ARGUMENT
        return False
    _pipeline_json(program)
    return True


def _device_configs() -> list[bytes]:
    """A program by itself, and P4DeviceConfig messages: reassign is field 1, extras 2 (a map), device_data 3."""
    program = min(_program_folder(), key=len)
    length = bytes((len(program) & 127 | 128, len(program) >> 7 & 127 | 128, len(program) >> 14))
    extras = b"\x12\x08\x0a\x06\x0a\x01k\x12\x01v"
    return [b"\x08\x01" + extras + b"\x1a" + length + program, b"\x1a\x02{}", extras, program]


TARGETS = {
    "frame": Target(_contributions, _frame),
    "hello": Target(lambda: [wire.pack_hello(7, 1 << 63)], _hello, errors=(FrameError,)),
    "hello-frame": Target(lambda: [udp_frame(0, wire.pack_hello(7, 1 << 63))], _hello_frame),
    "pipeline-frame": Target(_pipeline_frames, _pipeline_frame),
    "call": Target(_calls, _call),
    "coordinates": Target(_some_coordinates, _coordinates, errors=(InvalidTensorError,)),
    "lease": Target(_leases, _lease, errors=(DecodeError, GeometryMismatchError, JobServiceError)),
    "saved-job": Target(_saved_jobs, _saved_job, JSON_WORDS),
    "entity": Target(_entities, _entity, errors=(DecodeError, SchemaError)),
    "updates": Target(_some_updates, _updates, errors=(DecodeError,)),
    "digest": Target(_digests, _digest, errors=(DecodeError, SchemaError)),
    "byte-string": Target(lambda: [b"\0\1", b""], _byte_string),
    "p4info-text": Target(_p4info_texts, _p4info_text, P4INFO_WORDS, (SchemaError,)),
    "p4info": Target(_p4infos, _p4info, errors=(DecodeError, SchemaError)),
    "controller-toml": Target(
        lambda: [CONTROLLER], _of_file(config.load, "controller.toml"), TOML_WORDS, (ConfigError,)
    ),
    "geometry-toml": Target(
        lambda: [b"columns = 8\nblock_words = 32\nslots = 512\n"],
        _of_file(lambda path: artifacts.geometry(path.parent), pipeline_folders.GEOMETRY),
        TOML_WORDS,
        (pipeline_folders.PipelineNotFoundError,),
    ),
    "topology-json": Target(_topologies, _of_file(topology.load, "topology.json"), JSON_WORDS, (ConfigError,)),
    "pipeline-json": Target(lambda: list(_program_folder()), _pipeline_json, JSON_WORDS, (ProgramError,)),
    "device-config": Target(_device_configs, _device_config, DEVICE_CONFIG_WORDS, (ProgramError,)),
}
