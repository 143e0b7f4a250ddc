// A program with one of each thing that P4Runtime reaches. Compiled to every_kind.json and every_kind.p4info.txtpb:
//   p4c-bm2-ss --p4runtime-files every_kind.p4info.txtpb -o every_kind.json every_kind.p4
#include <core.p4>
#include <v1model.p4>

#define CPU_PORT 510

@controller_header("packet_in")
header packet_in_t { bit<9> ingress_port; bit<7> reason; }

@controller_header("packet_out")
header packet_out_t { bit<9> egress_port; bit<7> _pad; }

header sample_t { bit<48> id; bit<32> address; bit<16> kind; bit<8> level; bit<12> vlan; bit<4> flags; }

struct headers_t { packet_in_t packet_in; packet_out_t packet_out; sample_t sample; }
struct metadata_t { bit<2> color; }
struct sighting_t { bit<48> id; bit<9> port; }

parser SampleParser(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        transition select(s.ingress_port) { CPU_PORT: from_controller; default: sample; }
    }
    state from_controller { packet.extract(h.packet_out); transition sample; }
    state sample { packet.extract(h.sample); transition accept; }
}

control NoCheck(inout headers_t h, inout metadata_t m) { apply { } }

control SampleIngress(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    counter(8, CounterType.packets_and_bytes) seen;
    direct_counter(CounterType.packets_and_bytes) hits;
    register<bit<32>>(4) memory;
    meter(4, MeterType.packets) pace;
    direct_meter<bit<2>>(MeterType.bytes) rate;

    action forward(bit<9> port) { s.egress_spec = port; }
    action drop() { mark_to_drop(s); }
    action flood(bit<16> group) { s.mcast_grp = group; }
    action punt(bit<7> reason) {
        s.egress_spec = CPU_PORT;
        h.packet_in.setValid();
        h.packet_in = { s.ingress_port, reason };
    }
    action report() { digest<sighting_t>(1, { h.sample.id, s.ingress_port }); }

    table exact_table {
        key = { h.sample.id: exact; s.ingress_port: exact; }
        actions = { forward; drop; flood; punt; @tableonly report; @defaultonly NoAction; }
        default_action = NoAction();
        counters = hits;
        size = 4;
    }
    table prefix_table {
        key = { h.sample.address: lpm; }
        actions = { forward; drop; NoAction; }
        const default_action = NoAction();
    }
    table ternary_table {
        key = { h.sample.kind: ternary; h.sample.level: range; h.sample.vlan: optional; }
        actions = { forward; drop; NoAction; }
    }
    table keyless_table { actions = { forward; drop; report; NoAction; } }
    action measure() { rate.read(m.color); }
    table metered_table {
        key = { h.sample.kind: exact; }
        actions = { measure; NoAction; }
        meters = rate;
    }
    table const_table {
        key = { h.sample.flags: exact; }
        actions = { drop; NoAction; }
        const entries = { 15: drop(); }
    }

    apply {
        if (h.packet_out.isValid()) {
            s.egress_spec = h.packet_out.egress_port;
            h.packet_out.setInvalid();
        } else {
            seen.count((bit<32>) h.sample.level & 7);
            memory.write(0, h.sample.address);
            pace.execute_meter((bit<32>) h.sample.level & 3, m.color);
            metered_table.apply();
            prefix_table.apply();
            ternary_table.apply();
            keyless_table.apply();
            exact_table.apply();
            const_table.apply();
        }
    }
}

control SampleEgress(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }

control Deparse(packet_out packet, in headers_t h) {
    apply { packet.emit(h.packet_in); packet.emit(h.sample); }
}

V1Switch(SampleParser(), NoCheck(), SampleIngress(), SampleEgress(), NoCheck(), Deparse()) main;
