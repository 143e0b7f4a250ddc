// A learning switch: exact table, flooding, a digest, an indirect and a direct counter.
#include "construct.p4"

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers { ethernet_t ethernet; }
struct metadata { bit<8> unused; }
struct learn_t { bit<48> mac; bit<9> port; }

PARSE { state start { packet.extract(hdr.ethernet); transition accept; } }
NO_VERIFY
INGRESS {
    counter(4, CounterType.packets_and_bytes) by_port;
    direct_counter(CounterType.packets_and_bytes) by_entry;
    action forward(bit<9> port) { std.egress_spec = port; by_entry.count(); }
    action flood() { std.mcast_grp = 1; by_entry.count(); }
    action drop() { mark_to_drop(std); by_entry.count(); }
    action learn() { digest<learn_t>(1, {hdr.ethernet.src, std.ingress_port}); }
    action known() {}
    table mac {
        key = { hdr.ethernet.dst : exact; }
        actions = { forward; flood; drop; }
        default_action = flood();
        counters = by_entry;
        size = 3;
    }
    table learned {
        key = { hdr.ethernet.src : exact; std.ingress_port : exact; }
        actions = { known; learn; }
        default_action = learn();
        size = 16;
    }
    apply {
        by_port.count((bit<32>)std.ingress_port);
        learned.apply();
        mac.apply();
    }
}
EGRESS { apply { if (std.egress_port == std.ingress_port) mark_to_drop(std); } }
NO_UPDATE
EMIT
MAIN
