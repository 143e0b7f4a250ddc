"""Counters, registers, meters, digests, messages and assertions."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from conformance.case import Arrive
from conformance.corpus import all_cases
from p4reduce_switch.program import ExecutionError, MeterConfig, Program
from p4reduce_switch.program.state.stateful import GREEN, RED, YELLOW, Bucket

RATES = MeterConfig(cir=1000, cburst=2, pir=2000, pburst=4)


def command(operation: int, index: int = 0, value: int = 0) -> bytes:
    return struct.pack(">BBHHbB", operation, index, value, 0, 0, 0)


def result(program: Program, frame: bytes) -> tuple[int, int]:
    """(result, color) of a command."""
    ((_, out),) = program.process(1, frame)
    return struct.unpack(">BBHHbB", out)[3], out[-1]


def test_registers_ignore_indices_out_of_bounds(load: Callable[[str], Program]) -> None:
    program = load("state")
    cells = program.registers["MainIngress.cells"]
    result(program, command(1, 4, 0x1234))
    assert (cells.size, cells.bitwidth, cells.read(4)) == (5, 16, 0x1234)
    assert result(program, command(2, 4))[0] == 0x1234
    result(program, command(1, 5, 0x4321))
    assert result(program, command(2, 5))[0] == 0
    cells.write(0, 7)
    assert result(program, command(2, 0))[0] == 7
    with pytest.raises(IndexError):
        cells.read(5)
    with pytest.raises(ValueError, match="16-bit"):
        cells.write(0, 1 << 16)


def test_a_register_is_read_into_a_field_at_a_runtime_index(
    load: Callable[[str], Program], config: Callable[[str], dict[str, Any]]
) -> None:
    """BMv2 ends over such a read, so the corpus's program reads into metadata and copies from there."""
    changed = config("register_places")
    primitives = next(a["primitives"] for a in changed["actions"] if len(a["primitives"]) > 1)
    reads = [index for index, primitive in enumerate(primitives) if primitive["op"] == "register_read"]
    copied = primitives.pop(reads[1] + 1)
    assert copied["op"] == "assign"
    primitives[reads[1]]["parameters"][0] = copied["parameters"][0]
    known, direct = load("register_places"), Program(changed)
    frames = [step.frame for step in all_cases()["register_places"].steps if isinstance(step, Arrive)]
    assert len(frames) >= 50
    assert [direct.process(1, frame) for frame in frames] == [known.process(1, frame) for frame in frames]


def test_counters(load: Callable[[str], Program]) -> None:
    program = load("l2")
    counter = program.counters["MainIngress.by_port"]
    frame = bytes(14) + b"some payload"
    for port in (1, 3, 3, 200):  # 200 is out of bounds
        program.process(port, frame)
    assert [counter.read(i) for i in range(4)] == [(0, 0), (1, 26), (0, 0), (2, 52)]
    counter.write(3, 5, 6)
    assert counter.read(3) == (5, 6)
    with pytest.raises(IndexError):
        counter.read(4)


def test_digest(load: Callable[[str], Program]) -> None:
    program, digests = load("l2"), []
    frame = bytes.fromhex("020000000002 0200000000aa 0800")
    program.process(3, frame)  # without a handler
    program.on_digest = lambda name, samples: digests.append((name, samples))
    program.process(3, frame)
    program.tables["MainIngress.learned"].insert((0x0200000000AA, 3), 0, "MainIngress.known", ())
    program.process(3, frame)
    assert digests == [("learn_t", [(0x0200000000AA, 3)])]


def test_bucket_is_a_two_rate_three_color_marker() -> None:
    bucket = Bucket()
    assert bucket.execute(1, 0) == GREEN
    bucket.configure(RATES, 0)
    assert [bucket.execute(1, 0) for _ in range(5)] == [GREEN, GREEN, YELLOW, YELLOW, RED]
    assert bucket.execute(1, 499) == RED
    assert bucket.execute(1, 500) == YELLOW  # 500 us at 2000/s: one token of the peak rate
    assert bucket.execute(1, 1000) == GREEN
    assert [bucket.execute(1, 10**9) for _ in range(5)] == [GREEN, GREEN, YELLOW, YELLOW, RED]
    with pytest.raises(ValueError, match="below the committed"):
        bucket.configure(MeterConfig(2, 1, 1, 1), 0)


def test_indirect_meter(load: Callable[[str], Program]) -> None:
    program = load("state")
    meter = program.meters["MainIngress.indirect"]
    meter.clock = lambda: 0
    assert result(program, command(5, 1))[1] == GREEN
    meter.configure(1, RATES)
    assert meter.read(1) == RATES and meter.read(2) is None
    assert [result(program, command(5, 1))[1] for _ in range(5)] == [GREEN, GREEN, YELLOW, YELLOW, RED]
    assert result(program, command(5, 2))[1] == GREEN
    with pytest.raises(IndexError):
        meter.configure(4, RATES)


def test_direct_meter_counts_bytes(load: Callable[[str], Program]) -> None:
    program = load("state")
    table = program.tables["MainIngress.per_index"]
    assert table.has_direct_meter and not table.has_direct_counter
    table.insert((1,), 0, "MainIngress.metered", ())
    table.configure_meter((1,), 0, MeterConfig(cir=0, cburst=8, pir=0, pburst=16))
    assert [result(program, command(6, 1))[1] for _ in range(3)] == [GREEN, YELLOW, RED]
    table.configure_meter((1,), 0, None)
    assert result(program, command(6, 1))[1] == GREEN


def test_log_msg_calls_on_log(load: Callable[[str], Program]) -> None:
    program, messages = load("state"), []
    program.process(1, command(7, 3, 9))
    program.on_log = messages.append
    program.process(1, command(7, 3, 9))
    assert messages == ["value is 9 of 3"]


def test_a_log_message_in_egress_does_not_change_the_digest_of_ingress(load: Callable[[str], Program]) -> None:
    program, digests, messages = load("digest_and_log"), [], []
    program.on_digest = lambda name, rows: digests.append((name, rows))
    program.on_log = messages.append
    program.process(1, bytes.fromhex("0102 0000000000ff"))
    assert digests == [("seen_t", [(0xFF, 1)])]
    assert messages == ["b is 2"]


def test_failed_assert_drops_the_frame(load: Callable[[str], Program]) -> None:
    program = load("state")
    assert len(program.process(1, command(8, 0, 1))) == 1
    with pytest.raises(ExecutionError, match="assert"):
        program.process(1, command(8, 0, 2))


def test_stack_index_out_of_bounds_drops_the_frame(load: Callable[[str], Program]) -> None:
    program = load("stack")
    with pytest.raises(ExecutionError, match=r"index 3 is outside 0\.\.2"):
        program.process(1, bytes.fromhex("03 03 00 00 0340"))


def test_an_ingress_port_out_of_range_is_an_error(load: Callable[[str], Program]) -> None:
    with pytest.raises(ValueError, match="port 512"):
        load("l2").process(512, bytes(14))
