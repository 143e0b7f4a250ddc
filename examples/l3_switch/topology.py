"""Two hosts behind the router, in Mininet: sudo python3 topology.py SWITCH PYTHON [COMMAND]

SWITCH is p4reduce-simple-switch or simple_switch_grpc, PYTHON one that has p4runtime-shell. COMMAND runs on h1, such as
"ping -c 3 10.0.2.10"; without one there is Mininet's prompt.
"""

import socket
import subprocess
import sys
import time
from pathlib import Path

from mininet.cli import CLI
from mininet.net import Mininet
from mininet.node import Switch

ADDRESS = ("127.0.0.1", 9559)
SWITCH, PYTHON, *COMMAND = sys.argv[1:]


class Router(Switch):
    """The P4 switch; s1-eth1 is its port 1."""

    def start(self, controllers):
        ports = " ".join(f"-i {number}@{interface}" for number, interface in self.intfs.items() if number)
        self.cmd(f"{SWITCH} {ports} --no-p4 -- --grpc-server-addr {ADDRESS[0]}:{ADDRESS[1]} &")
        while self.cmd("jobs -r") and socket.socket().connect_ex(ADDRESS):
            time.sleep(0.1)

    def stop(self, deleteIntfs=True):
        self.cmd("kill %1; wait")
        super().stop(deleteIntfs)


net = Mininet(switch=Router, controller=None)
router = net.addSwitch("s1")
for n in (1, 2):
    net.addLink(net.addHost(f"h{n}", ip=f"10.0.{n}.10/24", mac=f"00:00:00:00:0{n}:10"), router)
try:
    net.start()
    for n, host in enumerate(net.hosts, 1):
        host.cmd(
            f"ip route add default via 10.0.{n}.1; ip neigh add 10.0.{n}.1 lladdr 00:00:00:00:0{n}:01 dev h{n}-eth0"
        )
    subprocess.run([PYTHON, Path(__file__).with_name("routes.py")], check=True)
    print(net.get("h1").cmd(*COMMAND)) if COMMAND else CLI(net)
finally:
    net.stop()
