"""Who gets through to the switch, and what a request may cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.security import Security
from p4reduce_runtime.settings import ConfigError
from p4reduce_switch.p4runtime import Server, request_guard
from p4reduce_switch.run import SwitchError, SwitchOptions, run_switch
from p4reduce_switch.switch import Switch
from rigs.certificates import Bench
from rigs.limits import LIMIT_S
from rigs.p4rt import Raw, Served, code_of, config, primary, served


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def locked(bench: Bench) -> Iterator[str]:
    """The address of a switch that takes orders over TLS only."""
    with served(security=bench.of("switch")) as switch:
        yield switch.address


@pytest.mark.fault("P4Runtime without a controller's certificate: refused")
def test_only_a_certificate_of_a_controller_is_accepted(bench: Bench, locked: str, tmp_path: Path) -> None:
    other = Bench(tmp_path / "other").of("controller")
    for caller, code in (
        (None, "UNAVAILABLE"),
        (other, "UNAVAILABLE"),
        (Security(bench.of("worker").ca, other.certificate, other.key), "UNAVAILABLE"),
        (bench.of("worker"), "PERMISSION_DENIED"),
        (bench.of("switch"), "PERMISSION_DENIED"),
    ):
        with Raw(locked, (0, 99), security=caller) as client:
            assert code_of(client.arbitrate) == code
    with primary(locked, security=bench.of("controller")) as client:
        assert code_of(client.get_config) == "FAILED_PRECONDITION", "no other's election id counted"


def test_listening_beyond_loopback_needs_tls_or_insecure_options(bench: Bench) -> None:
    switch = Switch()
    with pytest.raises(ConfigError, match=r"whoever reaches 0\.0\.0\.0:0 .*--tls-ca, --tls-certificate and --tls-key"):
        Server(switch, "0.0.0.0:0")
    with pytest.raises(SwitchError, match="say --insecure"):
        run_switch(SwitchOptions(listen="127.0.0.1:0", p4runtime="0.0.0.0:0"))
    with pytest.raises(SwitchError, match="--tls-key belong together"):
        run_switch(SwitchOptions(listen="127.0.0.1:0", p4runtime="0.0.0.0:0", tls_ca="x"))
    for options in ({"insecure": True}, {"security": bench.of("switch")}):
        Server(switch, "0.0.0.0:0", **options).stop()  # type: ignore[arg-type]
    switch.close()


def test_requests_above_the_size_limit_are_refused(switch: Served) -> None:
    with Raw(switch.address) as raw:
        raw.arbitrate()
        raw.set_config(config=config())
        write = p4r.WriteRequest(device_id=1, role="x" * (4 << 20))
        assert code_of(raw.rpc.Write, write, timeout=LIMIT_S) == "RESOURCE_EXHAUSTED"
        read = p4r.ReadRequest(device_id=1, role="x" * (256 << 10))
        assert code_of(lambda: list(raw.rpc.Read(read, timeout=LIMIT_S))) == "RESOURCE_EXHAUSTED"
        raw.set_config(config=config(device_config=config().p4_device_config + b" " * (30 << 20)))
        large = config(device_config=b" " * (request_guard.MAX_PIPELINE_BYTES - (64 << 10)))
        assert code_of(raw.set_config, config=large) == "INVALID_ARGUMENT", "it is looked at"
        raw.send(packet=p4r.PacketOut(payload=bytes(1 << 20)))
        assert code_of(raw.next) == "RESOURCE_EXHAUSTED"


@pytest.mark.fault("bytes that are no request: an error that names the cause")
def test_bytes_that_are_not_a_request_are_an_invalid_argument(switch: Served) -> None:
    with grpc.insecure_channel(switch.address) as channel:
        call = channel.unary_unary("/p4.v1.P4Runtime/Write")
        with pytest.raises(grpc.RpcError, match="this is no request of Write") as caught:
            call(b"\xff\xff", timeout=LIMIT_S)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
