"""The switches with interfaces as ports, as commands, and what the controller has to know of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from p4reduce_lab.addresses import free_port
from p4reduce_lab.errors import SetupError
from p4reduce_lab.network import need, run
from p4reduce_lab.processes import P4REDUCE
from p4reduce_runtime.p4runtime.schema import parse_p4info
from p4reduce_runtime.pipeline_folders import P4INFO

DEVICE_ID = 1
CPU_PORT = 510
BMV2 = "simple_switch_grpc"
MODEL, DRIVER = "tofino-model", "bf_switchd"
TARGETS = ("bmv2", "embedded", MODEL)
_CHIPS: Final = {"tna": ("tofino", "2"), "t2na": ("tofino2", "5")}
"""Architecture -> the drivers' name of the chip, and the model's number."""
_HUGE_PAGES = 160
"""Pages of 2 MB that the drivers take for DMA."""


def switch_keys(target: str) -> dict[str, object]:
    """Return the keys of the controller's [[switch]] that depend on the target."""
    return {"device_id": 0, "tofino_server": DRIVER} if target == MODEL else {"device_id": DEVICE_ID}


def architecture(target: str, pipeline: Path, switches: int) -> str:
    """Return the architecture of a Tofino's program in `pipeline`, "" for other targets. Raises SetupError."""
    if target != MODEL:
        return ""
    arch = parse_p4info((pipeline / P4INFO).read_text(encoding="utf-8")).pkg_info.arch
    if arch != "tna" or switches > 1:
        raise SetupError(
            f"--target {MODEL} runs one switch with a Tofino 1's program: `make p4-tofino CPU_PORT=320`, and give "
            "--pipeline out/tofino/tofino1-4x8-cpu320"
        )
    return arch


def commands(target: str, ports: Mapping[int, str], p4runtime: str, folder: Path, arch: str = "") -> list[list[str]]:
    """Return the commands that start a switch without a program, which the controller brings, in order.

    `ports`: the interface of each. The last command serves P4Runtime. `folder` is for files of a model, `arch` the
    architecture of its program. Raises MissingToolError and SetupError.
    """
    if target == MODEL:
        return _tofino_model(ports, p4runtime, folder, arch)
    interfaces = [word for port, name in ports.items() for word in ("-i", f"{port}@{name}")]
    if target == "embedded":
        options = ["--p4runtime", p4runtime, "--device-id", str(DEVICE_ID), "--cpu-port", str(CPU_PORT)]
        return [[*P4REDUCE, "switch", "run", *interfaces, *options]]
    bmv2 = need(BMV2, "install BMv2 (github.com/p4lang/behavioral-model), or choose --target embedded")
    general = ["--device-id", str(DEVICE_ID), "--no-p4", "--log-console", "--log-level", "warn"]
    if "--thrift-port" in run([bmv2, "--help"]):  # else it was built without Thrift, and refuses the option
        general += ["--thrift-port", str(free_port())]  # not the same one for all
    own = ["--grpc-server-addr", p4runtime, "--cpu-port", str(CPU_PORT)]
    return [[bmv2, *general, *interfaces, "--", *own]]


def _tofino_model(ports: Mapping[int, str], p4runtime: str, folder: Path, arch: str) -> list[list[str]]:
    """The open SDE's model of the chip, and its drivers, which find their files beside their own folder."""
    how = "build the open SDE (github.com/p4lang/open-p4studio), or choose --target embedded"
    model, driver = need(MODEL, how), need(DRIVER, how)
    available = Path("/proc/sys/vm/nr_hugepages")
    pages = int(available.read_text()) if available.exists() else 0
    if pages < _HUGE_PAGES:
        raise SetupError(f"{DRIVER} needs {_HUGE_PAGES} huge pages, and there are {pages}: sysctl vm.nr_hugepages=256")
    folder.mkdir(parents=True, exist_ok=True)
    connections = [{"device_port": port, "if": interface} for port, interface in ports.items()]
    (folder / "ports.json").write_text(json.dumps({"PortToIf": connections}))
    family, number = _CHIPS[arch]
    chip = {"id": "asic-0", "chip_family": family, "instance": 0}
    program = {"device-id": 0, "p4_programs": []}
    (folder / "switchd.conf").write_text(json.dumps({"chip_list": [chip], "instance": 0, "p4_devices": [program]}))
    within = ["env", f"--chdir={folder}"]
    install = ["--install-dir", str(Path(driver).resolve().parents[1])]
    base = str(free_port())
    return [
        [*within, model, "--chip-type", number, "-f", "ports.json", "-t", base, "--logs-disable"]
        + ["--no-cli", *install],
        [*within, driver, *install, "--conf-file", str(folder / "switchd.conf"), "--tcp-port-base", base]
        + ["--background", "--p4rt-server", p4runtime],
    ]
