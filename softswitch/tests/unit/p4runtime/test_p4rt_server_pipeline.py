"""Set and GetForwardingPipelineConfig: every action, every response type, every refusal."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from p4reduce_runtime.p4.config.v1 import p4info_pb2 as p4i
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_switch.p4runtime import server
from p4reduce_switch.program import Program
from rigs.limits import LIMIT_S
from rigs.p4rt import DEVICE_CONFIG, P4INFO, Raw, Served, code_of, config, entry


@pytest.fixture
def bare(switch: Served) -> Any:
    """Primary, without a program."""
    with Raw(switch.address) as one:
        one.arbitrate()
        yield one


DROP = ("INSERT", entry("prefix_table", "", "drop"))


def test_without_a_pipeline_calls_are_a_failed_precondition(bare: Raw) -> None:
    assert code_of(bare.get_config) == "FAILED_PRECONDITION"
    assert code_of(bare.write, DROP) == "FAILED_PRECONDITION"
    assert code_of(bare.read, entry("prefix_table")) == "FAILED_PRECONDITION"
    bare.send(packet=p4r.PacketOut(payload=b"x"))
    assert bare.next().error.canonical_code == 9


def test_verify_changes_nothing(bare: Raw) -> None:
    bare.set_config("VERIFY", config())
    assert code_of(bare.get_config) == "FAILED_PRECONDITION"


def test_commit_makes_the_program_readable(bare: Raw) -> None:
    bare.set_config("VERIFY_AND_COMMIT", config(cookie=77))
    assert bare.get_config() == config(cookie=77)
    assert bare.get_config("COOKIE_ONLY") == p4r.ForwardingPipelineConfig(cookie={"cookie": 77})
    assert bare.get_config("P4INFO_AND_COOKIE") == p4r.ForwardingPipelineConfig(p4info=P4INFO, cookie={"cookie": 77})
    assert bare.get_config("DEVICE_CONFIG_AND_COOKIE") == p4r.ForwardingPipelineConfig(
        p4_device_config=DEVICE_CONFIG, cookie={"cookie": 77}
    )
    bare.set_config("VERIFY_AND_COMMIT", config())
    assert not bare.get_config().HasField("cookie")


def legacy(program: bytes, reassign: bool = True) -> bytes:
    """The JSON in a p4.tmp.P4DeviceConfig, as the clients of P4Runtime before 1.0 send it."""
    size, length = len(program), b""
    while size > 127:
        length, size = length + bytes((size & 127 | 128,)), size >> 7
    return (b"\x08\x01" if reassign else b"") + b"\x1a" + length + bytes((size,)) + program


EXTRAS = b"\x12\x08\x0a\x06\x0a\x01k\x12\x01v"


@pytest.mark.parametrize(
    "device_config",
    [legacy(DEVICE_CONFIG), legacy(DEVICE_CONFIG, reassign=False), EXTRAS + legacy(DEVICE_CONFIG, reassign=False)],
    ids=["reassign", "device_data alone", "extras"],
)
@pytest.mark.parametrize("action", ["VERIFY_AND_COMMIT", "RECONCILE_AND_COMMIT"])
def test_a_device_config_in_the_legacy_message_is_accepted_and_returned_unchanged(
    raw: Raw, device_config: bytes, action: str
) -> None:
    raw.set_config(action, config(device_config, cookie=5))
    assert raw.get_config() == config(device_config, cookie=5)
    raw.write(DROP)
    assert raw.read(entry("prefix_table")) == [DROP[1]]


def test_writes_refer_to_the_saved_program_and_frames_to_the_committed_one(raw: Raw, switch: Served) -> None:
    forward = entry("ternary_table", "", "forward", 1, port=b"\x03")
    raw.write(("INSERT", forward))
    raw.set_config("VERIFY_AND_SAVE", config(cookie=2))
    assert raw.read(entry("ternary_table")) == [], "reads refer to the saved program"
    raw.write(("INSERT", entry("ternary_table", "", "forward", 1, port=b"\x04")))
    switch.switch.receive(1, bytes(15))
    assert switch.ports.sent.get(timeout=LIMIT_S)[0] == 3
    raw.set_config("COMMIT")
    switch.switch.receive(1, bytes(15))
    assert switch.ports.sent.get(timeout=LIMIT_S)[0] == 4
    assert raw.get_config("COOKIE_ONLY").cookie.cookie == 2


@pytest.mark.fault(
    "a pipeline that compiles for long, under a switch in use: frames are processed, and other calls are answered"
)
def test_while_a_program_is_compiled_other_calls_are_answered_and_frames_go_on(
    raw: Raw, switch: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def held(program: bytes) -> Program:
        begun.set()
        assert may_end.wait(LIMIT_S)
        return Program(program)

    monkeypatch.setattr(switch.server, "_load_program", held)
    with ThreadPoolExecutor(1) as pool:
        setting = pool.submit(raw.set_config, "VERIFY_AND_COMMIT", config(cookie=9))
        try:
            assert begun.wait(LIMIT_S)
            assert switch.server._compiling.locked(), "another program has to wait"
            forward = entry("ternary_table", "", "forward", 1, port=b"\x03")
            assert raw.write(("INSERT", forward)) == ["OK"]
            assert raw.read(entry("ternary_table")) == [forward]
            assert raw.get_config("COOKIE_ONLY").cookie.cookie == 0
            switch.switch.receive(1, bytes(15))
            assert switch.ports.sent.get(timeout=LIMIT_S)[0] == 3
            assert not setting.done()
        finally:
            may_end.set()
        setting.result(LIMIT_S)
    assert raw.get_config("COOKIE_ONLY").cookie.cookie == 9


@pytest.mark.fault(
    "pipelines set by concurrent calls: compiled one after the other; ABORTED after a minute or the call's deadline"
)
def test_a_program_that_cannot_be_compiled_in_time_is_refused(
    raw: Raw, switch: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PIPELINE_WAIT_S", 0.01)
    with switch.server._compiling:
        assert code_of(raw.set_config, "VERIFY_AND_COMMIT", config(cookie=7)) == "ABORTED"
    raw.set_config("VERIFY_AND_COMMIT", config(cookie=8))
    assert raw.get_config("COOKIE_ONLY").cookie.cookie == 8


def test_commit_needs_a_saved_program_and_no_config(raw: Raw) -> None:
    assert code_of(raw.set_config, "COMMIT") == "NOT_FOUND"
    assert code_of(raw.set_config, "COMMIT", config()) == "INVALID_ARGUMENT"


def test_a_failed_reconcile_changes_nothing(raw: Raw) -> None:
    raw.write(DROP)
    program = json.loads(DEVICE_CONFIG)
    (table,) = [t for t in program["pipelines"][0]["tables"] if t["name"].endswith("prefix_table")]
    table["max_size"] = 0
    assert code_of(raw.set_config, "RECONCILE_AND_COMMIT", config(json.dumps(program).encode())) == "INVALID_ARGUMENT"
    assert raw.get_config() == config()
    assert raw.read(entry("prefix_table")) == [DROP[1]]


def _renamed() -> Any:
    p4info = p4i.P4Info()
    p4info.CopyFrom(P4INFO)
    p4info.tables[0].preamble.name = "SampleIngress.other"
    return p4info


def _unsupported() -> bytes:
    program = json.loads(DEVICE_CONFIG)
    program["pipelines"][0]["tables"][0]["type"] = "indirect_ws"
    return json.dumps(program).encode()


BAD = {
    "nothing": p4r.ForwardingPipelineConfig(),
    "no program": p4r.ForwardingPipelineConfig(p4info=P4INFO),
    "no JSON": config(b"\x00\x01"),
    "a legacy message without a program": config(legacy(b"")),
    "a legacy message that is cut": config(legacy(DEVICE_CONFIG)[:-1]),
    "a legacy message whose program is no JSON": config(legacy(b"\x08\x01")),
    "a legacy message of ones": config(b"\x1a" + b"\xff" * 20),
    "another program's P4Info": config(p4info=_renamed()),
    "an unsupported construct": config(_unsupported()),
}


@pytest.mark.fault(
    "mutated P4DeviceConfig messages, the legacy form of a pipeline: INVALID_ARGUMENT, the program that was set stays"
)
@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("action", ["VERIFY", "VERIFY_AND_SAVE", "VERIFY_AND_COMMIT", "RECONCILE_AND_COMMIT"])
def test_a_bad_config_is_refused(raw: Raw, what: str, action: str) -> None:
    raw.write(DROP)
    assert code_of(raw.set_config, action, BAD[what]) == "INVALID_ARGUMENT"
    assert raw.read(entry("prefix_table")) == [DROP[1]]


def test_invalid_pipeline_requests_are_refused(raw: Raw) -> None:
    assert code_of(raw.set_config, "UNSPECIFIED", config()) == "INVALID_ARGUMENT"
    assert code_of(raw.set_config, "VERIFY", config(), device_id=2) == "NOT_FOUND"
    assert code_of(raw.get_config, device_id=2) == "NOT_FOUND"
    assert code_of(raw.read, entry("prefix_table"), device_id=2) == "NOT_FOUND"
    request = raw.addressed(p4r.WriteRequest(role="other"))
    assert code_of(raw.rpc.Write, request, timeout=LIMIT_S) == "NOT_FOUND"
    request = raw.addressed(p4r.WriteRequest(atomicity=p4r.WriteRequest.DATAPLANE_ATOMIC))
    assert code_of(raw.rpc.Write, request, timeout=LIMIT_S) == "UNIMPLEMENTED"


def test_capabilities_name_the_version(raw: Raw) -> None:
    assert raw.rpc.Capabilities(p4r.CapabilitiesRequest(), timeout=LIMIT_S).p4runtime_api_version == "1.3.0"
