"""Hosts made by Mininet, with its command line."""

from __future__ import annotations

import importlib
import logging
import os
import shlex
import subprocess
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from p4reduce_lab.errors import MissingToolError, SetupError
from p4reduce_lab.network import DATA, Namespace, NetworkBuilder, need
from p4reduce_lab.processes import P4REDUCE
from p4reduce_testbed.networks import Trunks, add_data_link
from p4reduce_testbed.topology import Host, Topology

SYSTEM_PACKAGES = "/usr/lib/python3/dist-packages"
"""The folders of distributions with Mininet's Python package, which is in no virtual environment."""
_INSTALL = "apt install mininet, or choose --network netns"


class MininetNetwork:
    """A `mininet.net.Mininet` without a controller of its own. The switches' processes are not Mininet's."""

    def __init__(self, topology: Topology, builder: NetworkBuilder, trunks: Trunks) -> None:
        self._topology, self._builder, self._trunks = topology, builder, trunks
        self._net: Any = None

    def open(self) -> None:
        for program in ("mnexec", "ifconfig"):
            need(program, _INSTALL)
        net = import_mininet("net")
        try:
            self._net = net.Mininet(controller=None, link=self._link_class(), build=False)
            for number, switch in enumerate(self._topology.switches, 1):
                self._net.addSwitch(switch.name, cls=_switch_class(), dpid=str(number))
            for host in self._topology.hosts:
                node = self._net.addHost(host.name, ip=str(host.interface), mac=host.mac)
                self.namespace(host).disable_ipv6()
                self._net.addLink(
                    node,
                    self._net[host.switch],
                    port1=0,
                    port2=host.port,
                    intfName1=DATA,
                    intfName2=host.switch_interface,
                    addr1=host.mac,
                )
            for trunk in self._topology.trunks:
                lower, upper = trunk.interfaces
                self._net.addLink(
                    self._net[trunk.switch],
                    self._net[trunk.parent],
                    port1=trunk.port,
                    port2=trunk.parent_port,
                    intfName1=lower,
                    intfName2=upper,
                )
            self._net.start()
        except SetupError:
            raise
        except Exception as error:  # Mininet raises bare Exception
            raise SetupError(f"Mininet cannot make the network: {error}") from error

    def close(self) -> None:
        if self._net is not None:
            net, self._net = self._net, None
            net.stop()

    def namespace(self, host: Host) -> Namespace:
        return Namespace(self._net[host.name].pid)

    def prompt(self, environments: Mapping[str, Mapping[str, str]], address: str) -> None:
        """Serve Mininet's prompt until `exit`, with `p4reduce` for the controller at `address`.

        `environments` are the variables of each host, by name.
        """
        base: Any = import_mininet("cli").CLI

        class TestbedCLI(base):  # type: ignore[misc]
            prompt = "p4reduce> "

            def do_p4reduce(self, line: str) -> None:
                """p4reduce ...: run a command with the testbed's controller, like `p4reduce stats`."""
                own = {**os.environ, "P4REDUCE_INSECURE": "1", "P4REDUCE_CONTROLLER": address}
                subprocess.run([*P4REDUCE, *shlex.split(line)], env=own, check=False)

        for name, environment in environments.items():
            for key, value in environment.items():
                self._net[name].cmd(f"export {key}='{value}'")
        print(
            f"controller at {address}. HOST COMMAND runs a command on a host, p4reduce ... runs a command with the "
            "controller, exit leaves. `help` lists Mininet's commands.",
            flush=True,
        )
        TestbedCLI(self._net)

    def _link_class(self) -> Any:
        """Return Mininet's link, made with the testbed's own veth: without offloads on both ends."""
        base: Any = import_mininet("link").Link
        network = self
        trunks = {trunk.interfaces: trunk for trunk in self._topology.trunks}
        hosts = {host.switch_interface: host for host in self._topology.hosts}

        class TestbedLink(base):  # type: ignore[misc]
            @classmethod
            def makeIntfPair(cls, name1: str, name2: str, *options: object, **named: object) -> None:
                if (name1, name2) in trunks:
                    network._trunks.add(trunks[name1, name2])
                else:
                    add_data_link(network._builder, hosts[name2], network.namespace(hosts[name2]))

            def delete(self) -> None:
                """Delete the switches' ends: the others go with them."""
                self.intf2.delete()
                if (self.intf1.name, self.intf2.name) in trunks:
                    self.intf1.delete()

        return TestbedLink


def import_mininet(module: str) -> Any:
    """Import `mininet.<module>`, also from the distribution's packages. Raises MissingToolError.

    A package has precedence over a folder without __init__.py, such as this repository's own `mininet`. Mininet
    replaces the logger class of the process by its own, which drops what is below OUTPUT: that is undone.
    """
    logger_class = logging.getLoggerClass()
    sys.path.append(SYSTEM_PACKAGES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Mininet 2.3 uses distutils
            return importlib.import_module(f"mininet.{module}")
    except ImportError as error:
        raise MissingToolError(f"Mininet cannot be imported ({error}): {_INSTALL}") from error
    finally:
        sys.path.remove(SYSTEM_PACKAGES)
        logging.setLoggerClass(logger_class)


def _switch_class() -> Any:
    """Return Mininet's node for the switch: its place in the network; the process behind it is the testbed's."""
    base: Any = import_mininet("node").Switch

    class P4Switch(base):  # type: ignore[misc]
        def start(self, controllers: object) -> None:
            """Do nothing: the testbed starts the process once all interfaces are there."""

    return P4Switch
