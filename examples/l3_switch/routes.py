"""Set the program and two routes with p4runtime-shell: python routes.py [HOST:PORT]

Prints each route with its packets.
"""

import sys
from ipaddress import IPv4Address
from pathlib import Path

from p4runtime_sh import shell

HERE = Path(__file__).resolve().parent
ROUTES = {"10.0.1.0/24": 1, "10.0.2.0/24": 2}
"""The port of each subnet. On port 1 the switch has MAC address 00:00:00:00:01:01, and the host 00:00:00:00:01:10."""


def main(address: str) -> None:
    config = shell.FwdPipeConfig(str(HERE / "l3_switch.p4info.txtpb"), str(HERE / "l3_switch.json"))
    shell.setup(device_id=0, grpc_addr=address, election_id=(0, 1), config=config, verbose=False)
    for prefix, port in ROUTES.items():
        entry = shell.TableEntry("MainIngress.routes")(action="MainIngress.forward")
        entry.match["hdr.ipv4.dst"] = prefix
        entry.action["src_mac"] = f"00:00:00:00:0{port}:01"
        entry.action["dst_mac"] = f"00:00:00:00:0{port}:10"
        entry.action["port"] = str(port)
        entry.insert()
    for counter in shell.DirectCounterEntry("MainIngress.routed").read():
        found = counter.table_entry.match["hdr.ipv4.dst"].lpm
        print(f"route {IPv4Address(found.value)}/{found.prefix_len}: {counter.packet_count} packets")
    shell.teardown()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9559")
