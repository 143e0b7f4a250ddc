"""The embedded switch as a target: the real switch and P4Runtime server, with ports that only remember."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from conformance.case import Outputs
from p4reduce_switch.p4runtime import Server
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S
from rigs.p4rt import MemoryPorts


class EmbeddedTarget:
    """A fresh embedded switch in this process, served at a port of its own."""

    def __init__(self) -> None:
        self.switch = Switch()
        self._ports = MemoryPorts()
        self.switch.add_ports(self._ports)
        self._server = Server(self.switch, "127.0.0.1:0")
        self._packet_ins = 0
        self._digests: set[tuple[str, tuple[int, ...]]] = set()
        self._watch()
        self.address = f"127.0.0.1:{self._server.port}"

    def _watch(self) -> None:
        """Count what the switch hands to the server, so that a replay knows what the client still has to get."""
        to_server, digest, packet_out = self.switch.on_packet_in, self.switch.on_digest, self.switch.packet_out
        assert to_server is not None and digest is not None
        self._packet_out_done = threading.Semaphore(0)

        def on_packet_in(frame: bytes) -> None:
            self._packet_ins += 1
            to_server(frame)

        def on_digest(name: str, rows: list[tuple[int, ...]]) -> None:
            self._digests.update((name, row) for row in rows)
            digest(name, rows)

        def on_packet_out(frame: bytes) -> None:
            packet_out(frame)
            self._packet_out_done.release()

        self.switch.on_packet_in, self.switch.on_digest = on_packet_in, on_digest
        self.switch.packet_out = on_packet_out  # type: ignore[method-assign]

    def __enter__(self) -> EmbeddedTarget:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(0)
        self.switch.close()

    def pipeline_set(self) -> None: ...

    def arrive(self, port: int, frame: bytes) -> Outputs:
        self.switch.receive(port, frame)
        return self._taken()

    def packet_out(self, send: Callable[[], None]) -> Outputs:
        send()
        if not self._packet_out_done.acquire(timeout=LIMIT_S):
            raise TimeoutError("the packet-out did not reach the switch within 5 s")
        return self._taken()

    def set_port(self, port: int, up: bool) -> None:
        self.switch.port_changed(port, up)

    def punted(self) -> tuple[int, int]:
        return self._packet_ins, len(self._digests)

    def _taken(self) -> Outputs:
        sent = self._ports.sent
        return tuple(sent.get() for _ in range(sent.qsize()))
