"""The interactive prompt: Mininet's own, or a small one of the same look for plain namespaces."""

from __future__ import annotations

import cmd
import os
import shlex
import subprocess
from collections.abc import Mapping

from p4reduce_lab.network import Namespace
from p4reduce_lab.processes import P4REDUCE
from p4reduce_runtime.security import INSECURE_VARIABLE
from p4reduce_testbed.topology import Topology

_HELP = "HOST COMMAND runs a command on a host, p4reduce ... runs a command with the controller, exit leaves."


def run_p4reduce(line: str, address: str) -> None:
    """Run `p4reduce LINE` against the testbed's controller."""
    environment = {**os.environ, INSECURE_VARIABLE: "1"}
    subprocess.run([*P4REDUCE, "--controller", address, *shlex.split(line)], env=environment, check=False)


def serve_mininet(base: type, net: object, address: str) -> None:
    """Serve Mininet's command line, with `p4reduce` added to it."""

    class TestbedCLI(base):  # type: ignore[misc]
        prompt = "p4reduce> "

        def do_p4reduce(self, line: str) -> None:
            """p4reduce ...: run a command with the testbed's controller, like `p4reduce stats`."""
            run_p4reduce(line, address)

    print(f"controller at {address}. {_HELP} `help` lists Mininet's commands.", flush=True)
    TestbedCLI(net)


class NetnsPrompt(cmd.Cmd):
    """`h1 ping h2` and `p4reduce stats`, until `exit`, Ctrl-D or Ctrl-C on an empty line."""

    prompt = "p4reduce> "

    def __init__(
        self,
        topology: Topology,
        namespaces: Mapping[str, Namespace],
        environments: Mapping[str, Mapping[str, str]],
        address: str,
    ) -> None:
        super().__init__()
        self._hosts = {host.name: host for host in topology.hosts}
        self._namespaces = namespaces
        self._environments = environments
        self._address = address

    def serve(self) -> None:
        """Read commands until `exit`."""
        self.cmdloop(f"controller at {self._address}, hosts {', '.join(self._hosts)}. {_HELP}")

    def default(self, line: str) -> None:
        """Run HOST COMMAND, with hosts' names in it replaced by their addresses as Mininet does."""
        name, _, rest = line.partition(" ")
        host = self._hosts.get(name)
        if host is None or not rest.strip():
            self.stdout.write(f"{_HELP}\nhosts: {', '.join(self._hosts)}\n")
            return
        words = [self._hosts[word].ip if word in self._hosts else word for word in rest.split(" ")]
        command = [*self._namespaces[name].within, "sh", "-c", " ".join(words)]
        try:
            subprocess.run(command, env={**os.environ, **self._environments[name]}, check=False)
        except KeyboardInterrupt:
            self.stdout.write("\n")

    def do_p4reduce(self, line: str) -> None:
        """p4reduce ...: run a command with the testbed's controller, like `p4reduce stats`."""
        run_p4reduce(line, self._address)

    def do_exit(self, line: str) -> bool:
        """Leave; the testbed is taken down."""
        return True

    def do_EOF(self, line: str) -> bool:
        """Leave, as `exit` does."""
        self.stdout.write("\n")
        return True

    def emptyline(self) -> bool:
        """Do nothing; not the last command again."""
        return False
