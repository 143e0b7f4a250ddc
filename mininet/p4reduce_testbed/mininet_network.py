"""Hosts made by Mininet, so that its command line and everything people know of it are there."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import logging
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from p4reduce_testbed import wiring
from p4reduce_testbed.commands import need, run
from p4reduce_testbed.errors import CommandFailed, MissingTool, TestbedError
from p4reduce_testbed.networks import NO_IPV6
from p4reduce_testbed.topology import Host, Topology

SYSTEM_PACKAGES = "/usr/lib/python3/dist-packages"
"""Where distributions put Mininet's Python package, which no virtual environment sees."""
_INSTALL = "apt install mininet, or choose --network netns"


class MininetNetwork:
    """A `mininet.net.Mininet` without a controller of its own. The switch's process is not Mininet's."""

    def __init__(self, topology: Topology, mark: str) -> None:
        self._topology = topology
        self._mark = mark
        self._net: Any = None

    def open(self) -> None:
        for program in ("mnexec", "ifconfig"):
            need(program, _INSTALL)
        net = import_mininet("net")
        link = _link_class(self._mark)
        try:
            self._net = net.Mininet(controller=None, link=link, build=False)
            switch = self._net.addSwitch(self._topology.switch.name, cls=_switch_class(), dpid="1")
            for host in self._topology.hosts:
                node = self._net.addHost(host.name, ip=str(host.interface), mac=host.mac)
                self._net.addLink(
                    node,
                    switch,
                    port1=0,
                    port2=host.port,
                    intfName1=wiring.DATA,
                    intfName2=self._topology.switch.interface(host.port),
                    addr1=host.mac,
                )
                for key in NO_IPV6:
                    with contextlib.suppress(CommandFailed):
                        run([*self.within(host), "sysctl", "-q", "-w", f"{key}=1"])
            self._net.start()
        except TestbedError:
            raise
        except Exception as error:  # Mininet raises bare Exception
            raise TestbedError(f"Mininet cannot make the network: {error}") from error

    def close(self) -> None:
        if self._net is not None:
            net, self._net = self._net, None
            net.stop()

    def within(self, host: Host) -> list[str]:
        return ["mnexec", "-a", self.namespace(host)]

    def namespace(self, host: Host) -> str:
        return str(self._net[host.name].pid)

    def prompt(self, environments: Mapping[str, Mapping[str, str]], address: str) -> None:
        from p4reduce_testbed.prompt import serve_mininet

        for name, environment in environments.items():
            for key, value in environment.items():
                self._net[name].cmd(f"export {key}='{value}'")
        serve_mininet(import_mininet("cli").CLI, self._net, address)


def import_mininet(module: str) -> Any:
    """Import `mininet.<module>`, from wherever it is installed. Raises MissingTool.

    It is looked for among the distribution's packages too, but nothing else there becomes importable. A
    folder named mininet on the import path, such as this repository's own, does not count. Mininet makes every
    logger that the process creates later one of its own kind, which drops what is below OUTPUT: that is undone.
    """
    logger_class = logging.getLoggerClass()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Mininet 2.3 uses distutils
        try:
            if not hasattr(sys.modules.get("mininet"), "__file__") or sys.modules["mininet"].__file__ is None:
                _load_package()
            return importlib.import_module(f"mininet.{module}")
        except ImportError as error:
            raise MissingTool(f"Mininet cannot be imported ({error}): {_INSTALL}") from error
        finally:
            logging.setLoggerClass(logger_class)


def _load_package() -> None:
    spec = importlib.machinery.PathFinder.find_spec("mininet", [*sys.path, SYSTEM_PACKAGES])
    if spec is None or spec.loader is None or spec.origin is None:
        raise MissingTool(f"Mininet is neither on the import path nor in {SYSTEM_PACKAGES}: {_INSTALL}")
    package = importlib.util.module_from_spec(spec)
    sys.modules["mininet"] = package
    try:
        spec.loader.exec_module(package)
    except BaseException:
        del sys.modules["mininet"]
        raise


def _switch_class() -> Any:
    """Return Mininet's node for the switch: its place in the network; the process behind it is the testbed's."""
    base: Any = import_mininet("node").Switch

    class P4Switch(base):  # type: ignore[misc]
        def start(self, controllers: object) -> None:
            """Do nothing: the testbed starts the process once all interfaces are there."""

    return P4Switch


def _link_class(mark: str) -> Any:
    """Return Mininet's link, made with the testbed's own veth: marked, and without offloads on both ends."""
    base: Any = import_mininet("link").Link

    class QuietLink(base):  # type: ignore[misc]
        @classmethod
        def makeIntfPair(
            cls,
            intfname1: str,
            intfname2: str,
            addr1: str,
            addr2: object,
            node1: Any,
            node2: object,
            deleteIntfs: bool = True,
        ) -> None:
            wiring.add_data_link(intfname2, addr1, str(node1.pid), mark)

        def delete(self) -> None:
            """Delete the switch's end alone: the other goes with it."""
            self.intf2.delete()

    return QuietLink
