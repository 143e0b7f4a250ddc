"""Many frames in one native call: the same answers as one by one, and why it stops."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from conformance.case import PROGRAMS
from p4reduce_runtime.records import zeros
from p4reduce_switch.program import ExecutionError, Program, Replica, batch
from rigs import random_expressions
from rigs.entries import insert
from rigs.random_expressions import apply, assign, field, hexstr

Frames = Sequence[tuple[int, bytes]]
FORWARD, FLOOD = "MainIngress.forward", "MainIngress.flood"


def program(name: str) -> Any:
    return Program((PROGRAMS / f"{name}.json").read_bytes())


class Call:
    """A batch over these frames, with room for `capacity` results of `size` bytes in all."""

    def __init__(self, loaded: Any, frames: Frames, capacity: int = 256, size: int = 1 << 20) -> None:
        assert loaded.batch is not None
        self.run_batch = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(loaded.batch.address)
        lengths = [len(frame) for _, frame in frames]
        self.bytes = np.frombuffer(b"".join(frame for _, frame in frames) or b"\0", np.uint8)
        self.arrived: NDArray[np.void] = zeros(batch.Frame, len(frames))
        for index, (port, frame) in enumerate(frames):
            self.arrived[index] = sum(lengths[:index]), len(frame), port
        self.out = np.zeros(size, np.uint8)
        self.results: NDArray[np.void] = zeros(batch.Frame, capacity)
        self.batch_array = loaded.batch.new()
        self.batch: np.void = self.batch_array[0]
        self.batch["frames"], self.batch["out_size"], self.batch["out_capacity"] = len(frames), size, capacity
        for name, array in (
            ("in_bytes", self.bytes),
            ("in_frames", self.arrived),
            ("out_bytes", self.out),
            ("out_frames", self.results),
        ):
            self.batch[name] = array.ctypes.data

    def run(self) -> int:
        return int(self.run_batch(self.batch_array.ctypes.data))

    def sent(self) -> list[tuple[int, bytes]]:
        """The results so far; makes room for others."""
        rows = self.results[: self.batch["frames_out"]].tolist()
        self.batch["frames_out"] = self.batch["bytes_out"] = 0
        return [(port, self.out[start : start + length].tobytes()) for start, length, port in rows]


def frame(number: int, length: int = 30) -> bytes:
    return number.to_bytes(6, "big") + bytes(6) + b"\x08\0" + bytes(range(length))


def test_a_batch_sends_the_frames_of_single_calls() -> None:
    loaded, other = program("l2"), program("l2")
    for each in (loaded, other):
        insert(each.tables["MainIngress.mac"], (3,), FORWARD, (4,))
        insert(each.tables["MainIngress.mac"], (5,), FLOOD, ())
        each.tables["MainIngress.learned"].set_default("MainIngress.known", ())
        for group in range(8):
            each.replication.multicast_groups[group] = [Replica(2, 1), Replica(7, 2)]
    frames = [(1 + number % 3, frame(number % 7, number)) for number in range(60)]
    expected = [result for port, data in frames for result in other.process(port, data)]
    call = Call(loaded, frames)
    assert call.run() == batch.DONE
    assert int(call.batch["frames_run"]) == 60
    assert call.sent() == expected and len(expected) > 10
    assert call.run() == batch.DONE and call.sent() == []


@pytest.mark.parametrize(("capacity", "size"), [(2, 1 << 20), (256, 130)])
def test_a_full_ring_stops_before_the_frame(capacity: int, size: int) -> None:
    loaded = program("l2")
    loaded.tables["MainIngress.mac"].set_default(FORWARD, (4,))
    loaded.tables["MainIngress.learned"].set_default("MainIngress.known", ())
    frames = [(1, frame(number)) for number in range(10)]
    call, results, stops = Call(loaded, frames, capacity, size), [], 0
    while call.run() == batch.FULL:
        stops += 1
        assert int(call.batch["frames_run"]) == len(results) + int(call.batch["frames_out"])
        results += call.sent()
    assert stops >= 4 and results + call.sent() == [(4, data) for _, data in frames]
    assert loaded.tables["MainIngress.mac"].has_direct_counter


def test_room_for_a_frame_follows_the_largest_multicast_group() -> None:
    loaded = program("l2")
    assert loaded.batch is not None and loaded.batch.copies == 1
    room = loaded.batch.max_bytes
    loaded.replication.multicast_groups[1] = [Replica(port, 0) for port in range(5)]
    assert (loaded.batch.copies, loaded.batch.max_bytes) == (5, 5 * room)
    del loaded.replication.multicast_groups[1]
    assert (loaded.batch.copies, loaded.batch.max_bytes) == (1, room)


def test_a_digest_stops_the_batch_until_it_is_collected() -> None:
    loaded, digests = program("l2"), []
    loaded.on_digest = lambda name, rows: digests.append((name, rows))
    loaded.tables["MainIngress.mac"].set_default(FORWARD, (4,))
    frames = [(3, (2).to_bytes(6, "big") + source.to_bytes(6, "big") + b"\x08\0") for source in (10, 11)]
    call = Call(loaded, frames)
    for number in (1, 2):
        assert call.run() == batch.EVENT
        assert int(call.batch["frames_run"]) == number
        loaded.collect()
    assert call.run() == batch.DONE
    assert digests == [("learn_t", [(10, 3)]), ("learn_t", [(11, 3)])]
    assert [port for port, _ in call.sent()] == [4, 4]


def test_a_frame_that_fails_sends_nothing_and_the_next_one_runs() -> None:
    loaded = program("state")
    good, bad = (struct.pack(">BBHHbB", 8, 0, value, 0, 0, 0) for value in (1, 2))  # an assert of the value
    call = Call(loaded, [(1, good), (1, bad), (1, good)])
    assert call.run() == batch.EVENT
    assert int(call.batch["frames_run"]) == 2
    with pytest.raises(ExecutionError, match="assert"):
        loaded.collect()
    assert call.run() == batch.DONE
    expected = loaded.process(1, good)
    assert call.sent() == expected + expected


def test_programs_that_clone_resubmit_or_recirculate_have_no_batch() -> None:
    assert program("copies").batch is None


def test_each_copy_of_a_frame_begins_with_the_wide_fields_that_ingress_left() -> None:
    """Egress adds the port to a, which ingress leaves in the frame, and to b, which it has written."""
    config, _ = random_expressions.program(0, 256)
    config["header_types"][2]["fields"] = [["a", 256, False], ["b", 256, False]]
    a, b, port = (field(*of) for of in (("h", "a"), ("h", "b"), ("standard_metadata", "egress_port")))
    added = [assign(of["value"], apply("&", apply("+", of, port), hexstr((1 << 256) - 1))) for of in (a, b)]
    group = assign(["standard_metadata", "mcast_grp"], hexstr(1))
    config["actions"][0]["primitives"] = [assign(["h", "b"], apply("^", a, b)), group]
    config["actions"].append({**config["actions"][0], "name": "add", "id": 1, "primitives": added})
    table = {**config["pipelines"][0]["tables"][0], "name": "added", "id": 1, "action_ids": [1], "actions": ["add"]}
    table |= {"next_tables": {"add": None}, "default_entry": {**table["default_entry"], "action_id": 1}}
    config["pipelines"][1] |= {"init_table": "added", "tables": [table]}
    loaded = Program(config)
    loaded.replication.multicast_groups[1] = [Replica(port, 0) for port in (3, 8, 5)]
    x, y = (np.random.default_rng(seed).bytes(32) for seed in (1, 2))
    first, second = int.from_bytes(x, "big"), int.from_bytes(x, "big") ^ int.from_bytes(y, "big")
    sent = [(port, b"".join((n + port).to_bytes(32, "big") for n in (first, second))) for port in (3, 8, 5)]
    assert loaded.process(1, x + y) == sent
