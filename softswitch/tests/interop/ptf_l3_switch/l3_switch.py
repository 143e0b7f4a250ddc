"""A PTF suite for examples/l3_switch: what a P4 user writes, without anything of p4reduce.

Run by test_interop_ptf.py: ptf --test-dir FOLDER -i 1@... -i 2@... --test-params="grpcaddr='...';example='...'"
"""

import ptf
import ptf.testutils as tu
from p4runtime_sh import shell
from p4runtime_sh.p4runtime import P4RuntimeWriteException
from ptf.base_tests import BaseTest

HOST = {1: "00:00:00:00:01:10", 2: "00:00:00:00:02:10"}
SWITCH = {1: "00:00:00:00:01:01", 2: "00:00:00:00:02:01"}


def number(data: bytes) -> int:
    return int.from_bytes(data, "big")


class RouterTest(BaseTest):
    """The switch has routes to both subnets, and a narrower one."""

    def setUp(self) -> None:
        BaseTest.setUp(self)
        self.dataplane = ptf.dataplane_instance
        self.dataplane.flush()
        example = tu.test_param_get("example")
        config = shell.FwdPipeConfig(f"{example}/l3_switch.p4info.txtpb", f"{example}/l3_switch.json")
        address = tu.test_param_get("grpcaddr")
        shell.setup(device_id=0, grpc_addr=address, election_id=(0, 1), config=config, verbose=False)
        self.route("10.0.1.0/24", 1)
        self.route("10.0.2.0/24", 2)
        self.route("10.0.2.128/25", 1)

    def tearDown(self) -> None:
        shell.teardown()
        BaseTest.tearDown(self)

    def route(self, prefix: str, port: int) -> None:
        entry = shell.TableEntry("MainIngress.routes")(action="MainIngress.forward")
        entry.match["hdr.ipv4.dst"] = prefix
        entry.action["src_mac"], entry.action["dst_mac"], entry.action["port"] = SWITCH[port], HOST[port], str(port)
        entry.insert()

    def arriving(self, destination: str, ttl: int = 64, source: int = 1):
        return tu.simple_udp_packet(eth_src=HOST[source], eth_dst=SWITCH[source], ip_dst=destination, ip_ttl=ttl)

    def leaving(self, destination: str, port: int, ttl: int = 63):
        return tu.simple_udp_packet(eth_src=SWITCH[port], eth_dst=HOST[port], ip_dst=destination, ip_ttl=ttl)


class LongestPrefixTest(RouterTest):
    def runTest(self) -> None:
        for destination, port in (("10.0.2.10", 2), ("10.0.2.200", 1), ("10.0.1.10", 1)):
            tu.send_packet(self, 1, self.arriving(destination))
            tu.verify_packets(self, self.leaving(destination, port), [port])


class DroppedTest(RouterTest):
    def runTest(self) -> None:
        damaged = self.arriving("10.0.2.10")
        damaged["IP"].chksum = 1
        for packet in (self.arriving("10.9.9.9"), self.arriving("10.0.2.10", ttl=1), damaged):
            tu.send_packet(self, 1, packet)
        tu.verify_no_other_packets(self)


class CounterTest(RouterTest):
    def runTest(self) -> None:
        packet = self.arriving("10.0.2.10")
        for _ in range(3):
            tu.send_packet(self, 1, packet)
            tu.verify_packets(self, self.leaving("10.0.2.10", 2), [2])
        counted = {}
        for counter in shell.DirectCounterEntry("MainIngress.routed").read():
            prefix = counter.table_entry.match["hdr.ipv4.dst"].lpm
            counted[number(prefix.value), prefix.prefix_len] = counter.packet_count, counter.byte_count
        expected = {(0x0A000100, 24): (0, 0), (0x0A000200, 24): (3, 3 * len(packet)), (0x0A000280, 25): (0, 0)}
        assert counted == expected, counted


class ChangedEntryTest(RouterTest):
    def runTest(self) -> None:
        entry = shell.TableEntry("MainIngress.routes")(action="MainIngress.forward")
        entry.match["hdr.ipv4.dst"] = "10.0.2.0/24"
        entry.action["src_mac"], entry.action["dst_mac"], entry.action["port"] = SWITCH[1], HOST[1], "1"
        entry.modify()
        tu.send_packet(self, 2, self.arriving("10.0.2.10", source=2))
        tu.verify_packets(self, self.leaving("10.0.2.10", 1), [1])
        entry.delete()
        tu.send_packet(self, 2, self.arriving("10.0.2.10", source=2))
        tu.verify_no_other_packets(self)
        try:
            entry.delete()
        except P4RuntimeWriteException as error:
            assert "NOT_FOUND" in str(error), error
        else:
            raise AssertionError("an entry that is gone cannot be deleted")
