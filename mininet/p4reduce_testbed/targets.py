"""The switches with interfaces as ports, as commands."""

from __future__ import annotations

from collections.abc import Sequence

from p4reduce_lab.addresses import free_port
from p4reduce_lab.network import need, run
from p4reduce_lab.processes import P4REDUCE

DEVICE_ID = 1
CPU_PORT = 510
BMV2 = "simple_switch_grpc"
TARGETS = ("bmv2", "embedded")


def command(target: str, interfaces: Sequence[str], p4runtime: str) -> list[str]:
    """Return the command that starts a switch without a program, which the controller brings.

    Interfaces are like "1@s1-eth1". Raises MissingToolError.
    """
    ports = [word for interface in interfaces for word in ("-i", interface)]
    if target == "embedded":
        options = ["--p4runtime", p4runtime, "--device-id", str(DEVICE_ID), "--cpu-port", str(CPU_PORT)]
        return [*P4REDUCE, "switch", "run", *ports, *options]
    bmv2 = need(BMV2, "install BMv2 (github.com/p4lang/behavioral-model), or choose --target embedded")
    general = ["--device-id", str(DEVICE_ID), "--no-p4", "--log-console", "--log-level", "warn"]
    if "--thrift-port" in run([bmv2, "--help"]):  # else it was built without Thrift, and refuses the option
        general += ["--thrift-port", str(free_port())]  # not the same one for all
    own = ["--grpc-server-addr", p4runtime, "--cpu-port", str(CPU_PORT)]
    return [bmv2, *general, *ports, "--", *own]
